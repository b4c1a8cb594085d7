// A reply in the making: events as they come, the end, and what it cost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "intentkv/message.h"
#include "intentkv/result.h"

namespace ikv {

/// Why a reply ended.
enum class FinishReason { kStop, kLength, kToolCalls, kCancelled, kError };

/// "stop", "length", "tool_calls", "cancelled", "error".
std::string_view finish_reason_name(FinishReason reason);

/// A token and the natural logarithm of its probability before sampling filters.
struct TokenLogprob {
  int32_t token = -1;
  std::string bytes;
  float logprob = 0.0f;
};

/// One sampled token with its most likely alternatives, best first.
struct SampledToken {
  TokenLogprob chosen;
  std::vector<TokenLogprob> alternatives;  ///< empty unless logprobs were asked for
};

/// Where a re-sent history stopped being the stored one. No text, only places.
struct Divergence {
  int32_t message = -1;     ///< index of the first message that differs; -1: template or tools
  int64_t character = 0;    ///< byte offset within its content, 0 when not the content differs
  int32_t lost_tokens = 0;  ///< stored tokens that could not be used again
  std::string what;         ///< "content", "role", "tool_calls", "template", "missing"
};

/// What the cache policy did for one generation; all of it zero with kv_policy "off".
struct KvUsage {
  double attended_share = 1.0;  ///< of all cached positions, what decode attention read
  int32_t kept_tokens = 0;      ///< read by the last step, mean over layers and KV heads
  int32_t pruned_tokens = 0;    ///< cached but not read by it
  int64_t demoted_pages = 0;    ///< pages turned to int4 before this reply
  double missed_mass = 0.0;     ///< measured attention mass left out, mean over probes
  uint64_t num_probes = 0;
  /// Cosine of this turn's mean query to the last turn's: it falls where the intent shifts. None in
  /// a session's first turn.
  std::optional<double> intent_similarity;
  int32_t intent_tokens = 0;    ///< of a stated intent, evaluated in a side branch
  int64_t pinned_pages = 0;     ///< kept hot because the client pinned their messages
  uint64_t resident_bytes = 0;  ///< of the session's keys and values, as they stand
};

/// What one generation cost; final once the generation has finished.
struct Usage {
  int32_t prompt_tokens = 0;     ///< tokens of the rendered conversation
  int32_t cached_tokens = 0;     ///< of those, taken from the cache
  int32_t evaluated_tokens = 0;  ///< of those, run through the model now
  int32_t completion_tokens = 0;
  int64_t queue_us = 0;    ///< waited before the first step
  int64_t prefill_us = 0;  ///< first step to first token
  int64_t decode_us = 0;   ///< first token to last
  KvUsage kv;
  std::vector<Divergence> divergences;  ///< empty, or where the history differed
};

/// A piece of a reply.
struct GenerationEvent {
  std::string text;                  ///< valid UTF-8, may be empty
  std::vector<SampledToken> tokens;  ///< the tokens behind it
  bool finished = false;             ///< the last event of a generation
};

struct TurnAudit;  // intentkv/audit.h

/// The whole of a reply.
struct GenerationResult {
  std::string text;  ///< without stop string and control tokens
  std::vector<SampledToken> tokens;
  Message message;  ///< role assistant, content and parsed tool calls
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  std::string session_id;
  std::shared_ptr<const TurnAudit> audit;  ///< null unless the request asked for one
};

/// Called on the engine's thread for every event: it must not block and must not call the engine.
using EventCallback = std::function<void(const GenerationEvent&)>;

/// A handle on a running generation. Thread-safe. Dropping the last handle cancels the generation.
class Generation {
 public:
  virtual ~Generation() = default;

  /// Waits for the next event; an error if the generation failed. After the event with `finished`
  /// it must not be called again. Not to be mixed with an EventCallback.
  virtual Result<GenerationEvent> next() = 0;

  /// Waits for the end. Errors: kCancelled, kOutOfMemory, kContextExceeded, kInternal.
  virtual Result<GenerationResult> wait() = 0;

  /// Stops at the next step; what was made so far stays in the session. Returns at once.
  virtual void cancel() = 0;

  virtual bool finished() const = 0;
};

}  // namespace ikv
