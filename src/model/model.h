// Model: the weights of one decoder and its forward over ragged batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "core/ids.h"
#include "core/layer_attention.h"
#include "model/decoder_spec.h"
#include "model/workspace.h"

namespace ikv {

class GgufFile;
struct DecoderWeights;

/// kPacked: weights in the kernels' layout and at the file's size, rows of 16 bits where weights
/// are quantised (ops/matmul.h). kReference: weights dequantised to float32 and plain loops, for
/// tests and as an oracle.
enum class ComputePath : uint8_t { kPacked, kReference };

struct ModelOptions {
  ComputePath path = ComputePath::kPacked;
};

/// Rows of any number of sequences, one after the other; which sequence and position a row has is
/// known to the LayerAttention alone.
struct ForwardBatch {
  std::span<const TokenId> tokens;      ///< one per row
  std::span<const int32_t> logit_rows;  ///< ascending indices of the rows whose logits are wanted
};

/// Immutable once loaded; forward() may run from several threads at once, each with its own
/// Workspace and LayerAttention.
class Model {
 public:
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Checks metadata and every tensor against the architecture, then re-packs the weights, in
  /// parallel on `threads`, giving the file's pages back to the system as it goes: afterwards
  /// `file` is not needed. Errors: kUnsupported (architecture, weight type or feature, by name),
  /// kInvalidFile (what is missing or does not fit), kOutOfMemory.
  static Result<std::unique_ptr<Model>> load(const GgufFile& file, const ModelOptions& options,
                                             ThreadPool& threads);

  const ModelConfig& config() const { return spec_.config; }
  const DecoderSpec& spec() const { return spec_; }

  /// Attention's shape in a layer, as attend() will be given it.
  const AttentionSpec& attention_spec(int layer) const {
    return spec_.layers[static_cast<size_t>(layer)].attention;
  }

  /// Runs `batch`, calling `attention` once a layer. `logits`: [logit_rows][vocab_size], written in
  /// the order of `logit_rows`. A row's result depends on its token and on what attention returns
  /// for it, not on the rest of the batch. Errors: kInvalidArgument (token or row out of range),
  /// those of attend(); `logits` is then undefined.
  Status forward(const ForwardBatch& batch, LayerAttention& attention, Workspace& workspace,
                 float* logits) const;

  /// Memory that the weights take.
  uint64_t weight_bytes() const;

 private:
  Model(DecoderSpec spec, std::unique_ptr<DecoderWeights> weights);
  Status check_batch(const ForwardBatch& batch) const;
  void embed(std::span<const TokenId> tokens, Workspace& workspace) const;
  Status attend_layer(int layer, size_t num_rows, LayerAttention& attention,
                      Workspace& workspace) const;
  void keep_rows(std::span<const int32_t> rows, Workspace& workspace) const;
  void finish_attention(int layer, size_t num_rows, Workspace& workspace) const;
  void feed_forward(int layer, size_t num_rows, Workspace& workspace) const;
  void add_branch(int layer, const std::vector<float>& post_norm, size_t num_rows,
                  Workspace& workspace) const;
  void normalise(const float* x, const std::vector<float>& weight, size_t num_rows, float* out,
                 Workspace& workspace) const;
  void output(size_t num_rows, Workspace& workspace, float* logits) const;

  DecoderSpec spec_;
  std::unique_ptr<DecoderWeights> weights_;
};

/// GGUF names of the architectures that load() accepts, for messages and `--help`.
std::span<const char* const> supported_architectures();

}  // namespace ikv
