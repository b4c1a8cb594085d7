// Random queries of a small model, for the tests of this folder.
#pragma once

#include <random>
#include <vector>

#include "core/intent.h"

namespace ikv::testing {

inline std::vector<QueryShape> test_shapes() {
  return {{4, 8}, {2, 16}};
}

/// Normally distributed values.
inline IntentQueries random_intent(size_t num_rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  IntentQueries queries;
  queries.shapes = test_shapes();
  queries.num_rows = num_rows;
  for (const QueryShape& shape : queries.shapes) {
    auto& layer = queries.layers.emplace_back(num_rows * shape.width());
    for (float& x : layer) x = normal(random);
  }
  return queries;
}

}  // namespace ikv::testing
