// The end of a request: what the client gets, what the session remembers, what is given back.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "engine/engine_impl.h"
#include "intentkv/audit.h"
#include "text/tool_call_parser.h"

namespace ikv {
namespace {

int64_t span_us(int64_t begin, int64_t end) {
  return begin > 0 && end > begin ? end - begin : 0;
}

std::string public_id(const std::string& key) {
  return key.substr(0, key.find('\x1f'));
}

}  // namespace

void EngineImpl::finish(RunningRequest& request, FinishReason reason) {
  const int64_t now = now_us();
  GenerationEvent rest = request.reply->finish();
  if (!rest.text.empty() || !rest.tokens.empty()) request.state->emit(std::move(rest));
  GenerationResult result;
  result.text = request.reply->text();
  result.tokens = request.reply->take_sampled();
  result.finish_reason = reason;
  result.message.role = Role::kAssistant;
  result.message.content = result.text;
  if (request.expects_tool_calls) {
    ToolCallDelta parsed = parse_tool_calls(result.text);
    if (!parsed.tool_calls.empty()) {
      result.message.content = parsed.text.empty() ? std::nullopt : std::optional(parsed.text);
      result.message.tool_calls = std::move(parsed.tool_calls);
      if (reason == FinishReason::kStop) result.finish_reason = FinishReason::kToolCalls;
    }
  }
  result.usage = request.usage;
  describe_policy(request, result.usage.kv);
  result.usage.completion_tokens = request.reply->num_sampled();
  const int64_t started = request.started_us > 0 ? request.started_us : now;
  result.usage.queue_us = span_us(request.submitted_us, started);
  result.usage.prefill_us =
      span_us(request.started_us, request.first_token_us > 0 ? request.first_token_us : now);
  result.usage.decode_us = span_us(request.first_token_us, now);
  if (request.record != nullptr) {
    result.session_id = public_id(request.record->id);
    remember_reply(request, result);
    remember_reply_intent(request, result.message);
  }
  if (request.audit != nullptr && request.has_sequence) make_audit(request, result);
  release(request);
  request.state->finish(std::move(result));
}

void EngineImpl::describe_policy(const RunningRequest& request, KvUsage& usage) const {
  if (!parts_.policy.prunes() && !parts_.policy.demotes()) return;
  const AttendStats& all = request.attend_stats;
  const AttendStats& last = request.last_step;
  if (all.cached > 0) {
    usage.attended_share = static_cast<double>(all.attended) / static_cast<double>(all.cached);
  }
  if (last.selections > 0) {
    usage.kept_tokens = static_cast<int32_t>(last.attended / last.selections);
    usage.pruned_tokens = static_cast<int32_t>((last.cached - last.attended) / last.selections);
  } else if (request.has_sequence) {
    usage.kept_tokens = parts_.pool->length(request.sequence);
  }
  usage.demoted_pages = static_cast<int64_t>(request.resident_stats.demoted_pages);
  usage.num_probes = all.probes;
  usage.pinned_pages = static_cast<int64_t>(request.resident_stats.pinned_pages);
  if (all.probes > 0) usage.missed_mass = all.missed_mass / static_cast<double>(all.probes);
  if (!request.has_sequence) return;
  for (const BlockId block : parts_.pool->blocks(request.sequence)) {
    for (int layer = 0; layer < parts_.pool->num_layers(); ++layer) {
      for (int head = 0; head < parts_.pool->num_kv_heads(layer); ++head) {
        usage.resident_bytes += parts_.pool->page_layout(block, layer, head).page_bytes;
      }
    }
  }
}

// The session may remember less of the reply than was evaluated (a stop string); the audit shows
// all of it.
void EngineImpl::make_audit(const RunningRequest& request, GenerationResult& result) const {
  TokenizedChat chat = request.prompt;
  const auto begin = static_cast<LogicalPos>(chat.tokens.size());
  const std::vector<TokenId>& reply = request.reply->tokens();
  chat.tokens.insert(chat.tokens.end(), reply.begin(), reply.end());
  const auto message = request.is_chat ? static_cast<int32_t>(request.messages.size()) : -1;
  if (!reply.empty()) {
    chat.spans.push_back({begin, static_cast<LogicalPos>(chat.tokens.size()), message,
                          Role::kAssistant, SpanPart::kContent, false});
  }
  auto audit = std::make_shared<TurnAudit>(
      request.audit->make_audit(*parts_.pool, request.sequence, parts_.policy, chat));
  audit->session_id = result.session_id;
  audit->turn = 1 + static_cast<int32_t>(
                        std::count_if(request.messages.begin(), request.messages.end(),
                                      [](const Message& m) { return m.role == Role::kAssistant; }));
  audit->usage = result.usage;
  result.audit = std::move(audit);
}

void EngineImpl::remember_reply(RunningRequest& request, GenerationResult& result) {
  // Cancelled before its prompt was read: there is no reply to remember.
  if (request.reply->tokens().empty()) return;
  Transcript& transcript = request.record->transcript;
  const auto kept = std::span(request.reply->tokens()).first(request.reply->num_kept_tokens());
  append_reply(transcript, kept, static_cast<int32_t>(transcript.messages.size()));
  transcript.messages.push_back(result.message);
}

void EngineImpl::fail(RunningRequest& request, Error error) {
  release(request);
  request.state->fail(std::move(error));
}

void EngineImpl::release(RunningRequest& request) {
  if (request.record != nullptr) {
    if (request.has_sequence) parts_.pool->promise(request.sequence, 0).ok();
    request.record->busy = false;
    sessions_.touch(*request.record);
    return;
  }
  if (!request.has_sequence) return;
  runner_.forget(request.sequence);
  parts_.pool->close(request.sequence);
}

}  // namespace ikv
