// Replies as the endpoints' clients expect them: whole, or as server-sent events.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "intentkv/generation.h"
#include "server/api_error.h"

namespace ikv {

/// Turns events and results of one request's generations into text for the client. One per request,
/// used from one thread. `choice` counts the request's generations.
class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;

  /// The frames before any text; may be empty.
  virtual std::string begin_stream() { return {}; }
  /// The frames for a piece of a reply; may be empty.
  virtual std::string stream_event(size_t choice, const GenerationEvent& event) = 0;
  /// The frames at a reply's end.
  virtual std::string stream_end(size_t choice, const GenerationResult& result) = 0;
  /// The frames after all replies' ends.
  virtual std::string finish_stream(const std::vector<GenerationResult>& results) = 0;
  /// The frame that tells of a failure after the stream has begun.
  virtual std::string stream_error(const ApiError& error) = 0;
  /// The body of a reply that is not streamed.
  virtual Json whole(const std::vector<GenerationResult>& results) = 0;
};

/// How an audit is written; empty: not at all.
using WriteAudit = std::function<Json(const TurnAudit&)>;

/// What every reply carries.
struct ReplyIdentity {
  std::string id;         ///< with the endpoint's prefix
  std::string model;      ///< the server's name for the model
  int64_t created_s = 0;  ///< Unix time
  WriteAudit write_audit{};
};

/// Random letters and digits behind `prefix`; unique for all practical purposes. Thread-safe.
std::string make_id(std::string_view prefix);
ReplyIdentity make_identity(std::string_view prefix, const std::string& model,
                            const WriteAudit& write_audit = {});
/// Adds the field `audit` if the client asked for one.
void add_audit(Json& target, const ReplyIdentity& identity, const GenerationResult& result);

/// "data: {…}\n\n".
std::string sse_data(const Json& json);
/// "event: NAME\ndata: {…}\n\n".
std::string sse_event(std::string_view name, const Json& json);

/// OpenAI's usage object of one or several replies, with `intentkv`.
Json usage_json(const std::vector<GenerationResult>& results);
/// What the cache did: {evaluated, kept, pruned, …, divergences}.
Json policy_usage_json(const Usage& usage);
/// {content: […]} of the chat API.
Json chat_logprobs_json(const std::vector<SampledToken>& tokens);
/// The message's tool calls in OpenAI's shape; `index`: with positions, as chunks have them.
Json tool_call_json(const ToolCall& call);
/// A token's bytes as text; broken UTF-8 becomes U+FFFD when written.
double finite_logprob(float logprob);

/// Gives every call an id that no other reply uses; engines number calls from 0 in each reply.
void name_tool_calls(std::vector<ToolCall>& calls);

}  // namespace ikv
