// One decoder step over a ragged batch: embed, layers, logits.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "model/elementwise.h"
#include "model/model.h"
#include "model/weights.h"

namespace ikv {

Status Model::check_batch(const ForwardBatch& batch) const {
  for (size_t row = 0; row < batch.tokens.size(); ++row) {
    const TokenId token = batch.tokens[row];
    if (token < 0 || token >= spec_.config.vocab_size) {
      return invalid_argument("token " + std::to_string(token) + " in row " + std::to_string(row) +
                              " is outside the model's vocabulary of " +
                              std::to_string(spec_.config.vocab_size));
    }
  }
  int64_t previous = -1;
  for (const int32_t row : batch.logit_rows) {
    if (row <= previous || static_cast<size_t>(row) >= batch.tokens.size()) {
      return invalid_argument("logit rows must ascend within the batch's " +
                              std::to_string(batch.tokens.size()) + " rows; got " +
                              std::to_string(row));
    }
    previous = row;
  }
  return {};
}

Status Model::forward(const ForwardBatch& batch, LayerAttention& attention, Workspace& workspace,
                      float* logits) const {
  IKV_RETURN_IF_ERROR(check_batch(batch));
  size_t num_rows = batch.tokens.size();
  if (num_rows == 0) return {};
  IKV_RETURN_IF_ERROR(workspace.reserve(spec_, num_rows));
  embed(batch.tokens, workspace);
  const int last = spec_.config.num_layers - 1;
  for (int layer = 0; layer <= last; ++layer) {
    IKV_RETURN_IF_ERROR(attend_layer(layer, num_rows, attention, workspace));
    if (layer == last) {
      // Behind the last attention only rows with logits matter.
      num_rows = batch.logit_rows.size();
      if (num_rows == 0) return {};
      keep_rows(batch.logit_rows, workspace);
    }
    finish_attention(layer, num_rows, workspace);
    feed_forward(layer, num_rows, workspace);
  }
  output(num_rows, workspace, logits);
  return {};
}

void Model::embed(std::span<const TokenId> tokens, Workspace& workspace) const {
  const size_t width = static_cast<size_t>(spec_.config.hidden_size);
  workspace.threads().parallel_for(tokens.size(), [&](size_t row, int) {
    float* x = workspace.x + row * width;
    weights_->embedding.unpack_row(static_cast<size_t>(tokens[row]), x);
    if (spec_.embedding_scale == 1.0f) return;
    for (size_t i = 0; i < width; ++i) x[i] *= spec_.embedding_scale;
  });
}

Status Model::attend_layer(int layer, size_t num_rows, LayerAttention& attention,
                           Workspace& workspace) const {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  const LayerWeights& w = weights_->layers[static_cast<size_t>(layer)];
  normalise(workspace.x, w.attention_norm, num_rows, workspace.normed, workspace);
  const std::array<const Linear*, 3> linears = {&w.q, &w.k, &w.v};
  const std::array<float*, 3> outs = {workspace.q, workspace.k, workspace.v};
  apply_linears(linears, workspace.normed, num_rows, outs, workspace);
  if (spec.qk_norm) {
    const AttentionSpec& a = spec.attention;
    normalise(workspace.q, w.q_norm, num_rows * static_cast<size_t>(a.num_heads), workspace.q,
              workspace);
    normalise(workspace.k, w.k_norm, num_rows * static_cast<size_t>(a.num_kv_heads), workspace.k,
              workspace);
  }
  return attention.attend(layer, spec.attention, workspace.q, workspace.k, workspace.v,
                          workspace.attended);
}

void Model::keep_rows(std::span<const int32_t> rows, Workspace& workspace) const {
  const AttentionSpec& a = spec_.layers.back().attention;
  const size_t hidden = static_cast<size_t>(spec_.config.hidden_size);
  const size_t q_width = static_cast<size_t>(a.num_heads) * static_cast<size_t>(a.head_dim);
  // Rows ascend, so a row never overwrites one that is still to move.
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t row = static_cast<size_t>(rows[i]);
    if (row == i) continue;
    std::copy_n(workspace.x + row * hidden, hidden, workspace.x + i * hidden);
    std::copy_n(workspace.attended + row * q_width, q_width, workspace.attended + i * q_width);
  }
}

void Model::finish_attention(int layer, size_t num_rows, Workspace& workspace) const {
  const LayerWeights& w = weights_->layers[static_cast<size_t>(layer)];
  apply_linear(w.attention_output, workspace.attended, num_rows, workspace.branch, workspace);
  add_branch(layer, w.post_attention_norm, num_rows, workspace);
}

void Model::feed_forward(int layer, size_t num_rows, Workspace& workspace) const {
  const LayerSpec& spec = spec_.layers[static_cast<size_t>(layer)];
  const LayerWeights& w = weights_->layers[static_cast<size_t>(layer)];
  normalise(workspace.x, w.ffn_norm, num_rows, workspace.normed, workspace);
  const std::array<const Linear*, 2> linears = {&w.gate, &w.up};
  const std::array<float*, 2> outs = {workspace.gate, workspace.up};
  apply_linears(linears, workspace.normed, num_rows, outs, workspace);
  gate_rows(spec.activation, workspace.gate, workspace.up,
            num_rows * static_cast<size_t>(spec_.config.ffn_size), workspace.threads());
  apply_linear(w.down, workspace.gate, num_rows, workspace.branch, workspace);
  add_branch(layer, w.post_ffn_norm, num_rows, workspace);
}

void Model::add_branch(int layer, const std::vector<float>& post_norm, size_t num_rows,
                       Workspace& workspace) const {
  if (spec_.layers[static_cast<size_t>(layer)].post_norms) {
    normalise(workspace.branch, post_norm, num_rows, workspace.branch, workspace);
  }
  const size_t size = num_rows * static_cast<size_t>(spec_.config.hidden_size);
  add_in_place(workspace.branch, size, workspace.x, workspace.threads());
}

void Model::output(size_t num_rows, Workspace& workspace, float* logits) const {
  normalise(workspace.x, weights_->output_norm, num_rows, workspace.normed, workspace);
  apply_linear(weights_->output_matrix(), workspace.normed, num_rows, logits, workspace);
  if (spec_.logit_softcap <= 0.0f) return;
  const float cap = spec_.logit_softcap;
  const size_t vocab = static_cast<size_t>(spec_.config.vocab_size);
  workspace.threads().parallel_for(num_rows, [&](size_t row, int) {
    float* row_logits = logits + row * vocab;
    for (size_t i = 0; i < vocab; ++i) row_logits[i] = cap * std::tanh(row_logits[i] / cap);
  });
}

}  // namespace ikv
