#include "server/chat_reply.h"

#include <utility>
#include <vector>

#include "text/tool_call_parser.h"

namespace ikv {
namespace {

class ChatReply : public ReplyFormat {
 public:
  ChatReply(ReplyIdentity identity, const ReplyOptions& options, bool with_tools,
            bool with_logprobs)
      : identity_(std::move(identity)),
        options_(options),
        with_tools_(with_tools),
        with_logprobs_(with_logprobs),
        choices_(static_cast<size_t>(options.num_choices)) {}

  std::string begin_stream() override {
    std::string frames;
    for (size_t i = 0; i < choices_.size(); ++i) {
      frames += frame(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    }
    return frames;
  }

  std::string stream_event(size_t choice, const GenerationEvent& event) override {
    if (!with_tools_) return text_frame(choice, event.text, event.tokens);
    return delta_frames(choice, choices_[choice].parser.push(event.text), event.tokens);
  }

  std::string stream_end(size_t choice, const GenerationResult& result) override {
    std::string frames;
    if (with_tools_) frames = delta_frames(choice, choices_[choice].parser.finish(), {});
    const bool called = choices_[choice].num_calls > 0;
    const FinishReason reason = called && result.finish_reason == FinishReason::kStop
                                    ? FinishReason::kToolCalls
                                    : result.finish_reason;
    Json chunk = make_chunk();
    chunk["choices"].push_back(choice_json(choice, "delta", Json::object(), nullptr,
                                           std::string(finish_reason_name(reason))));
    chunk["intentkv"] = policy_usage_json(result.usage);
    chunk["intentkv"]["session_id"] = result.session_id;
    add_audit(chunk["intentkv"], identity_, result);
    return frames + sse_data(chunk);
  }

  std::string finish_stream(const std::vector<GenerationResult>& results) override {
    std::string frames;
    if (options_.include_usage) {
      Json chunk = make_chunk();
      chunk["usage"] = usage_json(results);
      frames = sse_data(chunk);
    }
    return frames + "data: [DONE]\n\n";
  }

  std::string stream_error(const ApiError& error) override {
    return sse_data(openai_error_json(error));
  }

  Json whole(const std::vector<GenerationResult>& results) override {
    Json body = head("chat.completion");
    body["choices"] = Json::array();
    for (size_t i = 0; i < results.size(); ++i) {
      const GenerationResult& result = results[i];
      body["choices"].push_back(
          choice_json(i, "message", message_json(result.message),
                      with_logprobs_ ? chat_logprobs_json(result.tokens) : Json(nullptr),
                      std::string(finish_reason_name(result.finish_reason))));
    }
    body["usage"] = usage_json(results);
    if (results.empty()) return body;
    body["session_id"] = results.front().session_id;
    add_audit(body["usage"]["intentkv"], identity_, results.front());
    return body;
  }

 private:
  struct Choice {
    ToolCallParser parser;
    int num_calls = 0;
  };

  Json head(const char* object) const {
    return {{"id", identity_.id},
            {"object", object},
            {"created", identity_.created_s},
            {"model", identity_.model},
            {"system_fingerprint", nullptr}};
  }

  Json make_chunk() const {
    Json chunk = head("chat.completion.chunk");
    chunk["choices"] = Json::array();
    if (options_.include_usage) chunk["usage"] = nullptr;
    return chunk;
  }

  static Json choice_json(size_t index, const char* part, Json value, Json logprobs, Json finish) {
    return {{"index", index},
            {part, std::move(value)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish)}};
  }

  std::string frame(size_t choice, Json delta, Json logprobs, Json finish) const {
    Json chunk = make_chunk();
    chunk["choices"].push_back(
        choice_json(choice, "delta", std::move(delta), std::move(logprobs), std::move(finish)));
    return sse_data(chunk);
  }

  std::string text_frame(size_t choice, const std::string& text,
                         const std::vector<SampledToken>& tokens) const {
    const bool logprobs = with_logprobs_ && !tokens.empty();
    if (text.empty() && !logprobs) return {};
    return frame(choice, {{"content", text}}, logprobs ? chat_logprobs_json(tokens) : Json(nullptr),
                 nullptr);
  }

  std::string delta_frames(size_t choice, ToolCallDelta delta,
                           const std::vector<SampledToken>& tokens) {
    std::string frames = text_frame(choice, delta.text, tokens);
    name_tool_calls(delta.tool_calls);
    for (const ToolCall& call : delta.tool_calls) {
      int& index = choices_[choice].num_calls;
      if (index > 0 && !options_.parallel_tool_calls) break;
      Json json = {{"index", index++}};
      json.update(tool_call_json(call));
      frames += frame(choice, {{"tool_calls", Json::array({std::move(json)})}}, nullptr, nullptr);
    }
    return frames;
  }

  Json message_json(const Message& message) const {
    Json json = {{"role", "assistant"},
                 {"content", message.content ? Json(*message.content) : Json(nullptr)},
                 {"refusal", nullptr}};
    if (message.tool_calls.empty()) return json;
    std::vector<ToolCall> calls = message.tool_calls;
    if (!options_.parallel_tool_calls) calls.resize(1);
    name_tool_calls(calls);
    json["tool_calls"] = Json::array();
    for (const ToolCall& call : calls) json["tool_calls"].push_back(tool_call_json(call));
    return json;
  }

  const ReplyIdentity identity_;
  const ReplyOptions options_;
  const bool with_tools_;
  const bool with_logprobs_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<ReplyFormat> make_chat_reply(ReplyIdentity identity, const ReplyOptions& options,
                                             bool with_tools, bool with_logprobs) {
  return std::make_unique<ChatReply>(std::move(identity), options, with_tools, with_logprobs);
}

}  // namespace ikv
