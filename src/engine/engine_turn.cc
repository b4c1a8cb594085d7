// Level 1 in the engine: what a request says of its turn, the side branch, the decision.
#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "engine/engine_impl.h"
#include "intent/stated_intent.h"

namespace ikv {

std::vector<uint8_t> pinned_blocks(const TokenizedChat& chat, const std::vector<int32_t>& pins,
                                   int block_tokens) {
  std::vector<uint8_t> blocks(chat.tokens.size() / static_cast<size_t>(block_tokens), 0);
  for (const Span& span : chat.spans) {
    if (std::find(pins.begin(), pins.end(), span.message) == pins.end()) continue;
    for (LogicalPos p = span.begin; p < span.end; p += block_tokens - p % block_tokens) {
      const auto block = static_cast<size_t>(p / block_tokens);
      if (block < blocks.size()) blocks[block] = 1;
    }
  }
  return blocks;
}

std::span<const TokenId> span_words(const TokenizedChat& chat, int32_t last_message) {
  size_t begin = chat.tokens.size();
  for (const Span& span : chat.spans) {
    if (span.message == last_message) begin = std::min(begin, static_cast<size_t>(span.begin));
  }
  return std::span(chat.tokens).subspan(begin);
}

Status EngineImpl::set_intent(RunningRequest& running, const StatedIntent& stated,
                              const std::vector<int32_t>& pins) const {
  IKV_RETURN_IF_ERROR(check_pins(running, pins));
  std::vector<TokenId> tokens;
  if (!stated.empty()) {
    IKV_ASSIGN_OR_RETURN(const std::string text, intent_text(stated));
    IKV_ASSIGN_OR_RETURN(tokens, parts_.tokenizer->encode(text, false));
    const auto limit = static_cast<size_t>(parts_.config.prefill_chunk_tokens);
    if (tokens.size() > limit) {
      return invalid_argument("the stated intent has " + std::to_string(tokens.size()) +
                              " tokens, at most " + std::to_string(limit) +
                              " (prefill_chunk_tokens); state it shorter");
    }
  }
  if (parts_.config.kv_policy == "off") return {};  // there is nothing to decide
  running.intent = std::make_unique<RequestIntent>(RequestIntent{
      QueryCollector(query_shapes(*parts_.model), kSpanQueries),
      QueryCollector(query_shapes(*parts_.model), kSpanQueries), std::move(tokens), pins});
  return {};
}

Status EngineImpl::check_pins(const RunningRequest& running,
                              const std::vector<int32_t>& pins) const {
  const auto num_messages = static_cast<int32_t>(running.messages.size());
  for (const int32_t pin : pins) {
    if (pin >= 0 && pin < num_messages) continue;
    return invalid_argument("pins: there is no message " + std::to_string(pin) +
                            "; the conversation has " + std::to_string(num_messages) +
                            ", counted from 0");
  }
  if (pins.empty() || !parts_.policy.demotes()) return {};
  const auto blocks = pinned_blocks(running.prompt, pins, parts_.pool->block_tokens());
  const auto num_pinned = std::count(blocks.begin(), blocks.end(), uint8_t{1});
  for (int layer = 0; layer < parts_.pool->num_layers(); ++layer) {
    const int64_t allowed = hot_pages_allowed(*parts_.pool, parts_.policy.resident, layer,
                                              static_cast<int64_t>(blocks.size()));
    if (num_pinned <= allowed) continue;
    return invalid_argument("the pinned messages take " + std::to_string(num_pinned) + " of " +
                            std::to_string(blocks.size()) +
                            " pages of a KV head, but kv_resident " +
                            to_string(parts_.policy.resident) + " keeps only " +
                            std::to_string(allowed) + " hot; pin less or raise kv_resident");
  }
  return {};
}

// Nothing of the branch is committed: its rows are written after the prompt and given back, so that
// no later step can tell that it was there.
std::optional<IntentQueries> EngineImpl::read_stated_intent(RunningRequest& request) {
  RequestIntent& intent = *request.intent;
  if (intent.stated.empty()) return std::nullopt;
  QueryCollector queries(query_shapes(*parts_.model), kSpanQueries);
  StepRows rows;
  rows.sequence = request.sequence;
  rows.tokens = intent.stated;
  rows.queries = &queries;
  const Status status = runner_.probe(rows);
  if (!status.ok()) {
    log(LogLevel::kWarning, "a stated intent was passed over: " + status.error().message);
    return std::nullopt;
  }
  request.usage.kv.intent_tokens = static_cast<int32_t>(intent.stated.size());
  return queries.last(kSpanQueries);
}

void EngineImpl::begin_turn(RunningRequest& request, const PageMass& mass) {
  if (request.audit != nullptr) request.audit->note_mass(mass);
  if (request.intent == nullptr) return;
  const Status status = decide_residency(request, mass);
  if (!status.ok()) log(LogLevel::kWarning, "level 1: " + status.error().message);
}

// A page that finds no room for its smaller form stays as it is: nothing is lost by that.
Status EngineImpl::decide_residency(RunningRequest& request, const PageMass& mass) {
  IntentHistory fresh;  // plain text has no session
  IntentHistory& history = request.record != nullptr ? request.record->intent : fresh;
  const auto stated = read_stated_intent(request);
  TurnSources turn;
  turn.sequence = request.sequence;
  if (!request.messages.empty()) {
    turn.phase = intent_phase(request.messages.back().role, false);
  }
  turn.span_mass = &mass;
  turn.span = &request.intent->span;
  turn.stated = stated ? &*stated : nullptr;
  turn.words = span_words(request.prompt, static_cast<int32_t>(request.messages.size()) - 1);
  if (parts_.policy.demotes()) {
    const auto pins =
        pinned_blocks(request.prompt, request.intent->pins, parts_.pool->block_tokens());
    IKV_ASSIGN_OR_RETURN(const PageLists worth, turn_intent_.rank(turn, history));
    IKV_RETURN_IF_ERROR(demote_pages(
        *parts_.pool, request.sequence, worth, parts_.policy.resident, request.resident_stats,
        request.audit != nullptr ? &request.audit->reasons() : nullptr, pins));
  }
  IKV_ASSIGN_OR_RETURN(const auto similarity, turn_intent_.remember(turn, history));
  if (similarity) request.usage.kv.intent_similarity = static_cast<double>(*similarity);
  return {};
}

void EngineImpl::remember_reply_intent(RunningRequest& request, const Message& reply) {
  if (request.intent == nullptr || request.record == nullptr) return;
  const auto phase = intent_phase(Role::kAssistant, !reply.tool_calls.empty());
  const Status status =
      turn_intent_.remember_reply(phase, request.intent->reply, request.record->intent);
  if (!status.ok()) log(LogLevel::kWarning, "memory of intents: " + status.error().message);
}

}  // namespace ikv
