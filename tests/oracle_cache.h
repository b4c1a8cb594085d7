// The caches that stand behind a model in the oracle tests: one entry per attention path.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/contiguous_attention.h"
#include "model/model.h"

namespace ikv::testing {

/// One sequence's cache behind a LayerAttention.
class OracleCache {
 public:
  virtual ~OracleCache() = default;
  /// Announces the next forward: rows at positions [first, first + num_rows).
  virtual Status begin_step(LogicalPos first, int num_rows) = 0;
  /// Called when that forward is over, before the next step.
  virtual Status end_step() { return {}; }
  virtual LayerAttention& attention() = 0;
};

struct OracleCacheKind {
  std::string name;  ///< letters and digits only: part of the test's name
  double max_mean_kl =
      0.0;  ///< in nats, on top of the compute path's; 0: keys and values are exact
  std::function<std::unique_ptr<OracleCache>(const Model&, ThreadPool&)> create;
};

class ContiguousOracleCache : public OracleCache {
 public:
  ContiguousOracleCache(const Model& model, ThreadPool& threads)
      : attention_(model.config().num_layers, 1, threads) {}
  Status begin_step(LogicalPos first, int num_rows) override {
    std::vector<ContiguousRow> rows;
    for (int i = 0; i < num_rows; ++i) rows.push_back({0, first + i});
    return attention_.begin_step(rows);
  }
  LayerAttention& attention() override { return attention_; }

 private:
  ContiguousAttention attention_;
};

/// Every cache that keeps keys and values exact, so that the oracle's bounds apply to it.
inline std::vector<OracleCacheKind> exact_caches() {
  return {{"Contiguous", 0.0, [](const Model& model, ThreadPool& threads) {
             return std::make_unique<ContiguousOracleCache>(model, threads);
           }}};
}

}  // namespace ikv::testing
