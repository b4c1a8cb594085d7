// The caches that stand behind a model in the oracle tests: one entry per attention path.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/memory_ledger.h"
#include "base/thread_pool.h"
#include "engine/contiguous_attention.h"
#include "engine/pool_setup.h"
#include "engine/step_runner.h"
#include "kv/kv_pool.h"
#include "model/model.h"

namespace ikv::testing {

/// One sequence that grows step by step.
class OracleLane {
 public:
  virtual ~OracleLane() = default;
  /// Evaluates `tokens` (at least one) after those of the earlier steps. Returns logits
  /// [tokens][vocab_size], valid until the next step. `decode`: by the kernels of decode rows.
  virtual Result<const float*> step(std::span<const TokenId> tokens, bool decode) = 0;
};

/// Keys and values in float32, attended by plain loops.
class ContiguousLane : public OracleLane {
 public:
  ContiguousLane(const Model& model, ThreadPool& threads)
      : model_(model), attention_(model.config().num_layers, 1, threads), workspace_(threads) {}

  Result<const float*> step(std::span<const TokenId> tokens, bool /*decode*/) override {
    std::vector<ContiguousRow> rows;
    for (const TokenId token : tokens) {
      (void)token;
      rows.push_back({0, attention_.length(0) + static_cast<LogicalPos>(rows.size())});
    }
    IKV_RETURN_IF_ERROR(attention_.begin_step(rows));
    std::vector<int32_t> logit_rows(tokens.size());
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    logits_.resize(tokens.size() * static_cast<size_t>(model_.config().vocab_size));
    IKV_RETURN_IF_ERROR(
        model_.forward({tokens, logit_rows}, attention_, workspace_, logits_.data()));
    return logits_.data();
  }

 private:
  const Model& model_;
  ContiguousAttention attention_;
  Workspace workspace_;
  std::vector<float> logits_;
};

/// The engine's own paged pool and attention, everything attended.
class PagedLane : public OracleLane {
 public:
  static Result<std::unique_ptr<OracleLane>> create(const Model& model, ThreadPool& threads,
                                                    KvFormats formats) {
    auto lane = std::unique_ptr<PagedLane>(new PagedLane);
    IKV_ASSIGN_OR_RETURN(lane->pool_, KvPool::create(make_pool_config(model, formats, kBlockTokens,
                                                                      /*codes=*/false,
                                                                      /*demotable=*/false),
                                                     &lane->ledger_));
    lane->runner_ = std::make_unique<StepRunner>(model, *lane->pool_, nullptr, threads);
    IKV_ASSIGN_OR_RETURN(lane->sequence_, lane->pool_->open({}));
    return std::unique_ptr<OracleLane>(std::move(lane));
  }

  Result<const float*> step(std::span<const TokenId> tokens, bool decode) override {
    StepRows rows;
    rows.sequence = sequence_;
    rows.tokens = tokens;
    rows.decode = decode;
    rows.num_logit_rows = static_cast<int32_t>(tokens.size());
    IKV_RETURN_IF_ERROR(runner_->run({&rows, 1}));
    return runner_->logits(0).data();
  }

 private:
  PagedLane() = default;

  static constexpr int kBlockTokens = 32;
  static constexpr size_t kCapBytes = size_t{512} << 20;  // 1,000 tokens in float32 take 46 MiB
  MemoryLedger ledger_{kCapBytes};
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<StepRunner> runner_;
  KvSequenceId sequence_ = 0;
};

struct OracleCacheKind {
  std::string name;  ///< letters and digits only: part of the test's name
  double max_mean_kl =
      0.0;  ///< in nats, on top of the compute path's; 0: keys and values are exact
  std::function<Result<std::unique_ptr<OracleLane>>(const Model&, ThreadPool&)> create;
};

inline OracleCacheKind contiguous_cache() {
  return {"Contiguous", 0.0,
          [](const Model& model, ThreadPool& threads) -> Result<std::unique_ptr<OracleLane>> {
            return std::unique_ptr<OracleLane>(std::make_unique<ContiguousLane>(model, threads));
          }};
}

inline OracleCacheKind paged_cache(std::string name, KvFormat format, double max_mean_kl) {
  return {std::move(name), max_mean_kl, [format](const Model& model, ThreadPool& threads) {
            return PagedLane::create(model, threads, {format, format});
          }};
}

}  // namespace ikv::testing
