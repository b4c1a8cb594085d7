#include "demo_replay.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "calibration/calibrate.h"
#include "calibration/model_fingerprint.h"
#include "eval_data.h"
#include "gguf/reader.h"
#include "text/tokenizer_gguf.h"

namespace ikv {
namespace {

// Both lanes over one session, the same token at a time, so that what disturbs the machine
// disturbs both.
class SideBySide {
 public:
  SideBySide(ReplayLane& full, ReplayLane& pruned, const EvalSession& session, int min_history)
      : full_(full), pruned_(pruned), session_(session), min_history_(min_history) {}

  Status run(AttendCounter& counter, DemoComparison& comparison) {
    IKV_RETURN_IF_ERROR(full_.begin());
    IKV_RETURN_IF_ERROR(pruned_.begin());
    LogicalPos done = 0;
    for (const EvalTurn& turn : session_.turns) {
      const auto span =
          std::span<const TokenId>(session_.tokens)
              .subspan(static_cast<size_t>(done), static_cast<size_t>(turn.begin - done));
      IKV_RETURN_IF_ERROR(full_.prefill(span, true));
      IKV_RETURN_IF_ERROR(pruned_.prefill(span, true));
      const bool last = &turn == &session_.turns.back();
      if (last) {
        counter.grow(session_.tokens.size());
        pruned_.set_counter(&counter);
      }
      IKV_RETURN_IF_ERROR(replay_reply(turn, last, comparison));
      done = turn.end - 1;
    }
    pruned_.set_counter(nullptr);
    comparison.full = full_.cost();
    comparison.pruned = pruned_.cost();
    return {};
  }

 private:
  Status replay_reply(const EvalTurn& turn, bool last, DemoComparison& comparison) {
    const bool compared = turn.begin >= min_history_;
    const int64_t full_before = full_.cost().decode_us;
    const int64_t pruned_before = pruned_.cost().decode_us;
    for (LogicalPos p = turn.begin; p < turn.end; ++p) {
      const TokenId actual = session_.tokens[static_cast<size_t>(p)];
      if (compared) {
        const TokenDifference difference = compare_logits(full_.logits(), pruned_.logits(), actual);
        comparison.differences.push_back(difference);
        if (last) comparison.last_reply.push_back(difference);
      }
      // The last token's own evaluation belongs to the next turn's prompt.
      if (p + 1 == turn.end) break;
      IKV_RETURN_IF_ERROR(full_.decode(actual));
      IKV_RETURN_IF_ERROR(pruned_.decode(actual));
      if (compared) ++comparison.decoded_tokens;
    }
    if (!compared) return {};
    comparison.full_decode_us += full_.cost().decode_us - full_before;
    comparison.pruned_decode_us += pruned_.cost().decode_us - pruned_before;
    return {};
  }

  ReplayLane& full_;
  ReplayLane& pruned_;
  const EvalSession& session_;
  int min_history_;
};

const char* part_name(SpanPart part) {
  return part == SpanPart::kContent ? "content" : part == SpanPart::kHeader ? "header" : "footer";
}

Status fill_last_turn(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                      const Conversation& session, const EvalSession& replayed,
                      const AttendCounter& counter, AuditRecord& record) {
  ChatRenderOptions options;
  options.add_generation_prompt = false;
  IKV_ASSIGN_OR_RETURN(const TokenizedChat chat, chat_template.tokenize(session.messages, options));
  TurnAudit& audit = record.audit;
  audit.tokens = replayed.tokens;
  audit.attended_shares = counter.shares();
  audit.usage.prompt_tokens = replayed.turns.back().begin;
  const auto end = static_cast<LogicalPos>(audit.tokens.size());
  for (const Span& span : chat.spans) {
    if (span.begin >= end) break;
    AuditSpan entry;
    entry.message = span.message;
    entry.role = span.role;
    entry.part = part_name(span.part);
    entry.begin = span.begin;
    entry.end = std::min(span.end, end);
    audit.spans.push_back(std::move(entry));
  }
  record.texts = token_texts(
      [&](const std::vector<int32_t>& tokens) { return tokenizer.decode(tokens, true); },
      audit.tokens);
  return {};
}

}  // namespace

Result<DemoComparison> compare_caches(const std::string& model_path, const Conversation& session,
                                      const KvPolicy& policy, int num_threads, int min_history) {
  IKV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(model_path));
  IKV_ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(file));
  IKV_ASSIGN_OR_RETURN(const auto chat_template, load_chat_template(file, tokenizer));
  const std::string fingerprint = model_fingerprint(file);
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  ThreadPool threads(num_threads > 0 ? num_threads : std::max(1, cores));
  IKV_ASSIGN_OR_RETURN(const auto model, Model::load(file, {}, threads));
  IKV_ASSIGN_OR_RETURN(const Calibration calibration,
                       load_or_fit_codebooks(*model, *tokenizer, fingerprint, {}, threads));
  const int32_t context = model->config().context_tokens;
  EvalConversation conversation;
  conversation.messages = session.messages;
  IKV_ASSIGN_OR_RETURN(const EvalSession replayed,
                       make_eval_session(conversation, *chat_template, context));
  if (replayed.turns.empty() || replayed.turns.back().begin < min_history ||
      replayed.turns.back().message + 1 != static_cast<int32_t>(session.messages.size())) {
    return invalid_argument("the session must end with a reply after at least " +
                            std::to_string(min_history) + " tokens, and fit the context of " +
                            std::to_string(context));
  }
  ReplayConfig full_config;
  ReplayConfig pruned_config;
  pruned_config.policy = policy;
  const auto size = static_cast<int32_t>(replayed.tokens.size());
  IKV_ASSIGN_OR_RETURN(const auto full,
                       ReplayLane::create(*model, nullptr, threads, full_config, size));
  IKV_ASSIGN_OR_RETURN(const auto pruned, ReplayLane::create(*model, &calibration.books, threads,
                                                             pruned_config, size));
  DemoComparison comparison;
  comparison.session_tokens = size;
  AttendCounter counter;
  IKV_RETURN_IF_ERROR(SideBySide(*full, *pruned, replayed, min_history).run(counter, comparison));
  IKV_RETURN_IF_ERROR(
      fill_last_turn(*tokenizer, *chat_template, session, replayed, counter, comparison.last_turn));
  return comparison;
}

}  // namespace ikv
