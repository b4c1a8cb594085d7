#include "server/responses_reply.h"

#include <utility>

#include "text/tool_call_parser.h"

namespace ikv {
namespace {

Json text_part(const std::string& text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}};
}

Json responses_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"intentkv", policy_usage_json(usage)}};
}

class ResponsesReply : public ReplyFormat {
 public:
  ResponsesReply(ReplyIdentity identity, Json echo, const ReplyOptions& options, bool with_tools,
                 KeepReply keep)
      : identity_(std::move(identity)),
        echo_(std::move(echo)),
        options_(options),
        with_tools_(with_tools),
        keep_(std::move(keep)) {}

  std::string begin_stream() override {
    const Json response = response_json("in_progress");
    // Two statements: the order of evaluation within one sum is not fixed, the numbers' order is.
    std::string frames = event("response.created", {{"response", response}});
    frames += event("response.in_progress", {{"response", response}});
    return frames;
  }

  std::string stream_event(size_t, const GenerationEvent& piece) override {
    if (!with_tools_) return text_delta(piece.text);
    return delta_frames(parser_.push(piece.text));
  }

  std::string stream_end(size_t, const GenerationResult& result) override {
    std::string frames;
    if (with_tools_) frames = delta_frames(parser_.finish());
    frames += close_text();
    return frames + finish(result);
  }

  std::string finish_stream(const std::vector<GenerationResult>&) override { return {}; }

  std::string stream_error(const ApiError& error) override {
    return event("error", {{"code", error.code}, {"message", error.message}, {"param", nullptr}});
  }

  Json whole(const std::vector<GenerationResult>& results) override {
    const GenerationResult& result = results.front();
    if (result.message.content && !result.message.content->empty()) {
      text_delta(*result.message.content);
      close_text();
    }
    for (const ToolCall& call : result.message.tool_calls) call_frames(call);
    finish(result);
    return last_;
  }

 private:
  std::string event(const std::string& type, const Json& fields) {
    Json json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(fields);
    return sse_event(type, json);
  }

  Json response_json(const std::string& status) const {
    Json json = {{"id", identity_.id},
                 {"object", "response"},
                 {"created_at", identity_.created_s},
                 {"status", status},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"model", identity_.model},
                 {"output", output_},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"truncation", "disabled"},
                 {"usage", nullptr}};
    json.update(echo_);
    return json;
  }

  Json message_item(const std::string& status, Json content) const {
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }
  Json place() const {
    return {{"item_id", item_id_}, {"output_index", output_.size()}, {"content_index", 0}};
  }
  std::string at_place(const std::string& type, const Json& more) {
    Json fields = place();
    fields.update(more);
    return event(type, fields);
  }
  std::string item_event(const std::string& type, size_t index, const Json& item) {
    return event(type, {{"output_index", index}, {"item", item}});
  }

  std::string text_delta(const std::string& text) {
    if (text.empty()) return {};
    std::string frames;
    if (!std::exchange(in_text_, true)) {
      item_id_ = make_id("msg_");
      text_.clear();
      frames = item_event("response.output_item.added", output_.size(),
                          message_item("in_progress", Json::array()));
      frames += at_place("response.content_part.added", {{"part", text_part("")}});
    }
    text_ += text;
    return frames +
           at_place("response.output_text.delta", {{"delta", text}, {"logprobs", Json::array()}});
  }

  std::string close_text() {
    if (!std::exchange(in_text_, false)) return {};
    std::string frames =
        at_place("response.output_text.done", {{"text", text_}, {"logprobs", Json::array()}});
    frames += at_place("response.content_part.done", {{"part", text_part(text_)}});
    Json item = message_item("completed", Json::array({text_part(text_)}));
    frames += item_event("response.output_item.done", output_.size(), item);
    output_.push_back(std::move(item));
    message_.content = message_.content.value_or("") + text_;
    return frames;
  }

  std::string delta_frames(const ToolCallDelta& delta) {
    std::string frames = text_delta(delta.text);
    for (const ToolCall& call : delta.tool_calls) frames += call_frames(call);
    return frames;
  }

  std::string call_frames(const ToolCall& call) {
    if (!message_.tool_calls.empty() && !options_.parallel_tool_calls) return {};
    std::string frames = close_text();
    item_id_ = make_id("fc_");
    ToolCall named = call;
    named.id = make_id("call_");
    Json item = {{"id", item_id_},      {"type", "function_call"}, {"status", "in_progress"},
                 {"call_id", named.id}, {"name", call.name},       {"arguments", ""}};
    const Json where = {{"item_id", item_id_}, {"output_index", output_.size()}};
    frames += item_event("response.output_item.added", output_.size(), item);
    Json delta = where, done = where;
    delta["delta"] = call.arguments_json;
    done["arguments"] = call.arguments_json;
    frames += event("response.function_call_arguments.delta", delta);
    frames += event("response.function_call_arguments.done", done);
    item["status"] = "completed";
    item["arguments"] = call.arguments_json;
    frames += item_event("response.output_item.done", output_.size(), item);
    output_.push_back(std::move(item));
    message_.tool_calls.push_back(std::move(named));
    return frames;
  }

  std::string finish(const GenerationResult& result) {
    const bool cut = result.finish_reason == FinishReason::kLength;
    last_ = response_json(cut ? "incomplete" : "completed");
    if (cut) last_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    last_["usage"] = responses_usage(result.usage);
    add_audit(last_["usage"]["intentkv"], identity_, result);
    message_.role = Role::kAssistant;
    if (!message_.content && message_.tool_calls.empty()) message_.content = "";
    if (keep_) keep_(message_);
    return event(cut ? "response.incomplete" : "response.completed", {{"response", last_}});
  }

  const ReplyIdentity identity_;
  const Json echo_;
  const ReplyOptions options_;
  const bool with_tools_;
  const KeepReply keep_;
  ToolCallParser parser_;
  int64_t sequence_ = 0;
  Json output_ = Json::array();  ///< items that are whole
  std::string item_id_;          ///< of the item in the making
  std::string text_;
  bool in_text_ = false;
  Message message_;
  Json last_;
};

}  // namespace

std::unique_ptr<ReplyFormat> make_responses_reply(ReplyIdentity identity, Json echo,
                                                  const ReplyOptions& options, bool with_tools,
                                                  KeepReply keep) {
  return std::make_unique<ResponsesReply>(std::move(identity), std::move(echo), options, with_tools,
                                          std::move(keep));
}

}  // namespace ikv
