// Rotation of a step's queries and keys by their positions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/attention_spec.h"
#include "core/ids.h"

namespace ikv {

/// Cosines and sines of one step's positions, computed once per RopeSpec and used by all layers
/// that share it (Su et al. 2021, section 3.4). Not thread-safe while preparing; rotate() is.
class RopeRows {
 public:
  /// Starts a step; earlier tables are gone.
  void begin_step(std::span<const LogicalPos> positions);

  /// Makes the table of `rope`, if it is not there yet.
  void prepare(const RopeSpec* rope);

  /// Rotates `num_heads` heads of the step's row `row` in place. `rope` must be prepared; null does
  /// nothing. A row's result depends on nothing but its position.
  void rotate(const RopeSpec* rope, size_t row, int num_heads, int head_dim, float* x) const;

 private:
  struct Table {
    const RopeSpec* rope = nullptr;
    std::vector<float> cosines;  ///< [row][num_dims / 2], with the magnitude
    std::vector<float> sines;
  };
  const Table* find(const RopeSpec* rope) const;

  std::vector<LogicalPos> positions_;
  std::vector<Table> tables_;
  size_t num_tables_ = 0;  ///< valid ones of this step
};

}  // namespace ikv
