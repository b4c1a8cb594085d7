#include "engine/step_runner.h"

#include <algorithm>

namespace ikv {

StepRunner::StepRunner(const Model& model, KvPool& pool, const KeyCodebooks* codebooks,
                       ThreadPool& threads)
    : model_(model), pool_(pool), attention_(pool, codebooks, threads), workspace_(threads) {}

size_t StepRunner::scratch_bytes(const Model& model, const KvPool& pool, int num_rows,
                                 int num_logit_rows, int context_tokens, int num_threads) {
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  size_t attention = 0;  // layers take turns with it
  for (int layer = 0; layer < model.config().num_layers; ++layer) {
    attention = std::max(
        attention, AttentionScratch::bytes_for(model.attention_spec(layer), num_logit_rows,
                                               context_tokens, pool.block_tokens(), num_threads));
  }
  return attention + Workspace::bytes_for(model.spec(), static_cast<size_t>(num_rows)) +
         PoolAttention::scratch_bytes(pool, num_rows) +
         static_cast<size_t>(num_logit_rows) * vocab * sizeof(float);
}

Status StepRunner::reserve(std::span<const StepRows> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    Status status = pool_.reserve(rows[i].sequence, static_cast<int32_t>(rows[i].tokens.size()));
    if (status.ok()) continue;
    for (size_t j = 0; j < i; ++j) pool_.abandon(rows[j].sequence);
    return status;
  }
  return {};
}

Status StepRunner::run(std::span<const StepRows> rows) {
  IKV_RETURN_IF_ERROR(reserve(rows));
  Status status = forward(rows);
  for (const StepRows& r : rows) {
    if (status.ok()) {
      pool_.commit(r.sequence, r.tokens);
    } else {
      pool_.abandon(r.sequence);
    }
  }
  return status;
}

Status StepRunner::probe(const StepRows& rows) {
  IKV_RETURN_IF_ERROR(reserve({&rows, 1}));
  Status status = attention_.begin_step({&rows, 1});
  if (status.ok()) status = model_.forward({rows.tokens, {}}, attention_, workspace_, nullptr);
  pool_.abandon(rows.sequence);
  return status;
}

Status StepRunner::forward(std::span<const StepRows> rows) {
  tokens_.clear();
  logit_rows_.clear();
  for (const StepRows& r : rows) {
    tokens_.insert(tokens_.end(), r.tokens.begin(), r.tokens.end());
    const auto end = static_cast<int32_t>(tokens_.size());
    for (int32_t i = end - r.num_logit_rows; i < end; ++i) logit_rows_.push_back(i);
  }
  logits_.resize(logit_rows_.size() * static_cast<size_t>(model_.config().vocab_size));
  IKV_RETURN_IF_ERROR(attention_.begin_step(rows));
  return model_.forward({tokens_, logit_rows_}, attention_, workspace_, logits_.data());
}

std::span<const float> StepRunner::logits(size_t logit_row) const {
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  return std::span(logits_).subspan(logit_row * vocab, vocab);
}

}  // namespace ikv
