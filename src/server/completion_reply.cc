#include "server/completion_reply.h"

#include <utility>

namespace ikv {
namespace {

// The older API's four parallel arrays.
Json logprobs_json(const std::vector<SampledToken>& tokens, size_t& offset) {
  Json texts = Json::array(), values = Json::array(), others = Json::array(),
       offsets = Json::array();
  for (const SampledToken& token : tokens) {
    texts.push_back(token.chosen.bytes);
    values.push_back(finite_logprob(token.chosen.logprob));
    Json top = Json::object();
    for (const TokenLogprob& other : token.alternatives) {
      top[other.bytes] = finite_logprob(other.logprob);
    }
    others.push_back(std::move(top));
    offsets.push_back(offset);
    offset += token.chosen.bytes.size();
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(others)},
          {"text_offset", std::move(offsets)}};
}

class CompletionReply : public ReplyFormat {
 public:
  CompletionReply(ReplyIdentity identity, const ReplyOptions& options,
                  std::vector<std::string> echoes, bool with_logprobs)
      : identity_(std::move(identity)),
        options_(options),
        echoes_(std::move(echoes)),
        with_logprobs_(with_logprobs),
        offsets_(echoes_.size()) {
    for (size_t i = 0; i < echoes_.size(); ++i) offsets_[i] = echoes_[i].size();
  }

  std::string begin_stream() override {
    std::string frames;
    for (size_t i = 0; i < echoes_.size(); ++i) {
      if (!echoes_[i].empty()) frames += frame(i, echoes_[i], nullptr, nullptr);
    }
    return frames;
  }

  std::string stream_event(size_t choice, const GenerationEvent& event) override {
    const bool logprobs = with_logprobs_ && !event.tokens.empty();
    if (event.text.empty() && !logprobs) return {};
    return frame(choice, event.text,
                 logprobs ? logprobs_json(event.tokens, offsets_[choice]) : Json(nullptr), nullptr);
  }

  std::string stream_end(size_t choice, const GenerationResult& result) override {
    Json chunk = head();
    chunk["choices"].push_back(
        choice_json(choice, "", nullptr, std::string(finish_reason_name(result.finish_reason))));
    chunk["intentkv"] = policy_usage_json(result.usage);
    return sse_data(chunk);
  }

  std::string finish_stream(const std::vector<GenerationResult>& results) override {
    std::string frames;
    if (options_.include_usage) {
      Json chunk = head();
      chunk["usage"] = usage_json(results);
      frames = sse_data(chunk);
    }
    return frames + "data: [DONE]\n\n";
  }

  std::string stream_error(const ApiError& error) override {
    return sse_data(openai_error_json(error));
  }

  Json whole(const std::vector<GenerationResult>& results) override {
    Json body = head();
    for (size_t i = 0; i < results.size(); ++i) {
      const GenerationResult& result = results[i];
      body["choices"].push_back(
          choice_json(i, echoes_[i] + result.text,
                      with_logprobs_ ? logprobs_json(result.tokens, offsets_[i]) : Json(nullptr),
                      std::string(finish_reason_name(result.finish_reason))));
    }
    body["usage"] = usage_json(results);
    return body;
  }

 private:
  Json head() const {
    Json json = {{"id", identity_.id},
                 {"object", "text_completion"},
                 {"created", identity_.created_s},
                 {"model", identity_.model},
                 {"choices", Json::array()}};
    if (options_.stream && options_.include_usage) json["usage"] = nullptr;
    return json;
  }

  static Json choice_json(size_t index, const std::string& text, Json logprobs, Json finish) {
    return {{"index", index},
            {"text", text},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish)}};
  }

  std::string frame(size_t choice, const std::string& text, Json logprobs, Json finish) const {
    Json chunk = head();
    chunk["choices"].push_back(choice_json(choice, text, std::move(logprobs), std::move(finish)));
    return sse_data(chunk);
  }

  const ReplyIdentity identity_;
  const ReplyOptions options_;
  const std::vector<std::string> echoes_;
  const bool with_logprobs_;
  std::vector<size_t> offsets_;  // bytes of text up to the next token, by choice
};

}  // namespace

std::unique_ptr<ReplyFormat> make_completion_reply(ReplyIdentity identity,
                                                   const ReplyOptions& options,
                                                   std::vector<std::string> echoes,
                                                   bool with_logprobs) {
  return std::make_unique<CompletionReply>(std::move(identity), options, std::move(echoes),
                                           with_logprobs);
}

}  // namespace ikv
