#include "server/messages_reply.h"

#include <utility>
#include <vector>

#include "text/tool_call_parser.h"

namespace ikv {
namespace {

// Anthropic counts what came from the cache apart from what was read.
Json anthropic_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"output_tokens", usage.completion_tokens},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"intentkv", policy_usage_json(usage)}};
}

Json parsed_arguments(const ToolCall& call) {
  Json input = Json::parse(call.arguments_json, nullptr, false);
  return input.is_object() ? input : Json::object();
}

class MessagesReply : public ReplyFormat {
 public:
  MessagesReply(ReplyIdentity identity, const ReplyOptions& options, bool with_tools)
      : identity_(std::move(identity)), options_(options), with_tools_(with_tools) {}

  std::string begin_stream() override {
    Json message = head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = {{"input_tokens", 0}, {"output_tokens", 0}};
    return sse_event("message_start", {{"type", "message_start"}, {"message", message}}) +
           sse_event("ping", {{"type", "ping"}});
  }

  std::string stream_event(size_t, const GenerationEvent& event) override {
    if (!with_tools_) return text_delta(event.text);
    return delta_frames(parser_.push(event.text));
  }

  std::string stream_end(size_t, const GenerationResult& result) override {
    std::string frames;
    if (with_tools_) frames = delta_frames(parser_.finish());
    frames += close_text();
    const bool called = num_calls_ > 0 && result.finish_reason == FinishReason::kStop;
    const std::string reason =
        anthropic_stop_reason(called ? FinishReason::kToolCalls : result.finish_reason);
    Json last = {{"type", "message_delta"},
                 {"delta", {{"stop_reason", reason}, {"stop_sequence", nullptr}}},
                 {"usage", anthropic_usage(result.usage)}};
    add_audit(last["usage"]["intentkv"], identity_, result);
    return frames + sse_event("message_delta", last);
  }

  std::string finish_stream(const std::vector<GenerationResult>&) override {
    return sse_event("message_stop", {{"type", "message_stop"}});
  }

  std::string stream_error(const ApiError& error) override {
    return sse_event("error", anthropic_error_json(error));
  }

  Json whole(const std::vector<GenerationResult>& results) override {
    const GenerationResult& result = results.front();
    Json message = head();
    Json content = Json::array();
    if (result.message.content && !result.message.content->empty()) {
      content.push_back({{"type", "text"}, {"text", *result.message.content}});
    }
    std::vector<ToolCall> calls = result.message.tool_calls;
    if (!options_.parallel_tool_calls && calls.size() > 1) calls.resize(1);
    for (const ToolCall& call : calls) {
      content.push_back({{"type", "tool_use"},
                         {"id", make_id("toolu_")},
                         {"name", call.name},
                         {"input", parsed_arguments(call)}});
    }
    message["content"] = std::move(content);
    message["stop_reason"] = anthropic_stop_reason(result.finish_reason);
    message["stop_sequence"] = nullptr;
    message["usage"] = anthropic_usage(result.usage);
    add_audit(message["usage"]["intentkv"], identity_, result);
    return message;
  }

 private:
  Json head() const {
    return {{"id", identity_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", identity_.model}};
  }

  std::string block_start(Json block) const {
    return sse_event(
        "content_block_start",
        {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }
  std::string block_delta(Json delta) const {
    return sse_event(
        "content_block_delta",
        {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }
  std::string block_stop() {
    return sse_event("content_block_stop", {{"type", "content_block_stop"}, {"index", index_++}});
  }

  std::string text_delta(const std::string& text) {
    if (text.empty()) return {};
    std::string frames;
    if (!std::exchange(in_text_, true)) frames = block_start({{"type", "text"}, {"text", ""}});
    return frames + block_delta({{"type", "text_delta"}, {"text", text}});
  }
  std::string close_text() { return std::exchange(in_text_, false) ? block_stop() : ""; }

  std::string delta_frames(const ToolCallDelta& delta) {
    std::string frames = text_delta(delta.text);
    for (const ToolCall& call : delta.tool_calls) {
      if (num_calls_ > 0 && !options_.parallel_tool_calls) break;
      ++num_calls_;
      frames += close_text();
      frames += block_start({{"type", "tool_use"},
                             {"id", make_id("toolu_")},
                             {"name", call.name},
                             {"input", Json::object()}});
      frames += block_delta(
          {{"type", "input_json_delta"}, {"partial_json", dump_json(parsed_arguments(call))}});
      frames += block_stop();
    }
    return frames;
  }

  const ReplyIdentity identity_;
  const ReplyOptions options_;
  const bool with_tools_;
  ToolCallParser parser_;
  int index_ = 0;
  int num_calls_ = 0;
  bool in_text_ = false;
};

}  // namespace

std::string anthropic_stop_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "max_tokens";
    case FinishReason::kToolCalls:
      return "tool_use";
    case FinishReason::kStop:
    case FinishReason::kCancelled:
    case FinishReason::kError:
      break;
  }
  return "end_turn";
}

std::unique_ptr<ReplyFormat> make_messages_reply(ReplyIdentity identity,
                                                 const ReplyOptions& options, bool with_tools) {
  return std::make_unique<MessagesReply>(std::move(identity), options, with_tools);
}

}  // namespace ikv
