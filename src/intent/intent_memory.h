// Memory of earlier turns' intents, and how far an intent has moved since the last turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/intent.h"
#include "core/message.h"
#include "intent/intent_builder.h"

namespace ikv {

/// What the conversation was doing when a query was made; each phase looks back at other things.
enum class IntentPhase : uint8_t {
  kUser,   ///< a user's or system message
  kThink,  ///< the assistant's text
  kAct,    ///< a tool call
  kTool,   ///< a tool's output
};
inline constexpr size_t kNumIntentPhases = 4;

/// "user", "think", "act", "tool".
std::string_view intent_phase_name(IntentPhase phase);
/// The phase of a message's tokens; `in_tool_call`: they belong to a call.
IntentPhase intent_phase(Role role, bool in_tool_call);

/// Limits and decay of the memory.
struct IntentMemoryOptions {
  size_t rows_per_phase = 16;  ///< bound, >= 1: 16 rows of SmolLM2 are 1.1 MB a phase
  float decay = 0.7f;          ///< of a weight at each turn, 0..1
  float forget_below = 0.01f;  ///< a row of less weight is dropped
};

/// Representative queries by phase, before RoPE. When a phase has too many rows the two most alike
/// become one, their mean by weight, so that what is rare stays. Decay acts here, on what is
/// remembered, and never on the present turn's own queries. Not thread-safe.
class IntentMemory {
 public:
  /// kInvalidArgument: options out of range, named.
  static Result<IntentMemory> create(std::vector<QueryShape> shapes, IntentMemoryOptions options);

  /// Adds a span's rows to a phase, together with weight 1. kInvalidArgument: other shapes. Cost:
  /// (rows_per_phase + rows)² products of whole rows at most.
  Status remember(IntentPhase phase, const IntentQueries& queries);

  /// A turn is over: weights decay, what is too light is forgotten.
  void end_turn();

  /// All phases' rows, or those of one, with their weights, as a source for build_intent().
  WeightedQueries recall() const;
  WeightedQueries recall(IntentPhase phase) const;

  size_t num_rows(IntentPhase phase) const;
  /// Bytes of the rows held.
  size_t size_bytes() const;
  void clear();

 private:
  struct Row {
    std::vector<float> values;  // of all layers, one after the other
    float weight = 0.0f;
  };
  IntentMemory(std::vector<QueryShape> shapes, IntentMemoryOptions options);
  static void merge_most_alike(std::vector<Row>& rows);
  void append(const std::vector<Row>& rows, WeightedQueries& into) const;

  std::vector<QueryShape> shapes_;
  IntentMemoryOptions options_;
  std::array<std::vector<Row>, kNumIntentPhases> phases_;
};

/// Cosine of two intents' mean queries, averaged over layers and heads: 1 for the same intent. The
/// parts that all queries of a head have in common keep it high; compare it with other turns', not
/// with 0. kInvalidArgument: shapes differ, or one has no rows.
Result<float> intent_similarity(const IntentQueries& a, const IntentQueries& b);

/// Similarity of each turn's intent to the turn before. Not thread-safe.
class IntentDrift {
 public:
  /// The similarity to the last call's queries; nothing at the first call or for other shapes.
  std::optional<float> update(const IntentQueries& queries);

 private:
  std::optional<IntentQueries> last_;
};

}  // namespace ikv
