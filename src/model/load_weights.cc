#include "model/load_weights.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "model/metadata.h"
#include "model/tensor_reader.h"
#include "ops/packed_matrix.h"
#include "quant/dequantise.h"

namespace ikv {
namespace {

constexpr int kMaxVocab = 1 << 24;

// Tensors that older converters wrote and that say nothing the metadata does not.
bool is_redundant(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with("attn_rot_embd.weight");
}

class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, const ModelOptions& options, ThreadPool& threads)
      : file_(file), options_(options), threads_(threads) {
    used_.insert(kRopeDivisors);
  }

  // Checks "<name>.weight" and an optional "<name>.bias" and queues the packing into `out`.
  Status want_linear(const std::string& name, int num_outputs, int num_inputs, Linear& out);
  // Reads a vector of floats now; they are small.
  Status read_vector(const std::string& name, int size, std::vector<float>& out);
  Status check_nothing_left() const;
  Status pack_all();

 private:
  struct Job {
    const GgufTensor* tensor;
    Linear* out;
    size_t offset = 0;  // into the packed weights
  };
  Status allocate_packed();
  Status pack(const Job& job) const;

  const GgufFile& file_;
  ModelOptions options_;
  ThreadPool& threads_;
  std::set<std::string, std::less<>> used_;
  std::vector<Job> jobs_;
  std::shared_ptr<AlignedBuffer> packed_;  // one for all matrices, so that it has huge pages
};

Status WeightLoader::want_linear(const std::string& name, int num_outputs, int num_inputs,
                                 Linear& out) {
  const std::string weight = name + ".weight";
  IKV_ASSIGN_OR_RETURN(const GgufTensor* tensor,
                       find_matrix(file_, weight, num_outputs, num_inputs));
  used_.insert(weight);
  out.num_outputs = num_outputs;
  out.num_inputs = num_inputs;
  jobs_.push_back({.tensor = tensor, .out = &out});
  const std::string bias = name + ".bias";
  return has_tensor(file_, bias) ? read_vector(bias, num_outputs, out.bias) : Status();
}

Status WeightLoader::read_vector(const std::string& name, int size, std::vector<float>& out) {
  used_.insert(name);
  return read_float_tensor(file_, name, size, out);
}

Status WeightLoader::check_nothing_left() const {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (used_.contains(tensor.name) || is_redundant(tensor.name)) continue;
    return unsupported("the model has a tensor '" + std::string(tensor.name) +
                       "' that its architecture does not use here; it may be a variant that this "
                       "version does not know");
  }
  return {};
}

// Places in the order in which a step reads them: one ascending stream.
Status WeightLoader::allocate_packed() {
  size_t total = 0;
  for (Job& job : jobs_) {
    const size_t bytes =
        PackedMatrix::packed_bytes(job.tensor->type, static_cast<size_t>(job.out->num_outputs),
                                   static_cast<size_t>(job.out->num_inputs));
    job.offset = total;
    // Chunks are whole cache lines, or, of a few formats, halves of them.
    if (__builtin_add_overflow(total, (bytes + 63) / 64 * 64, &total)) {
      return make_error(ErrorCode::kOutOfMemory, "the weights are larger than the address space");
    }
  }
  IKV_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::allocate(total));
  packed_ = std::make_shared<AlignedBuffer>(std::move(buffer));
  return {};
}

Status WeightLoader::pack_all() {
  if (options_.path == ComputePath::kPacked) IKV_RETURN_IF_ERROR(allocate_packed());
  // Largest first, so that the threads end together.
  std::stable_sort(jobs_.begin(), jobs_.end(), [](const Job& a, const Job& b) {
    return a.tensor->data.size() > b.tensor->data.size();
  });
  std::mutex mutex;
  Status status;
  threads_.parallel_for(jobs_.size(), [&](size_t i, int) {
    Status packed = pack(jobs_[i]);
    if (packed.ok()) return;
    const std::lock_guard lock(mutex);
    if (status.ok()) status = std::move(packed);
  });
  return status;
}

Status WeightLoader::pack(const Job& job) const {
  Linear& out = *job.out;
  const auto num_outputs = static_cast<size_t>(out.num_outputs);
  const auto num_inputs = static_cast<size_t>(out.num_inputs);
  if (options_.path == ComputePath::kPacked) {
    out.packed = PackedMatrix::pack(job.tensor->type, job.tensor->data.data(), num_outputs,
                                    num_inputs, packed_, job.offset);
  } else {
    out.floats.resize(num_outputs * num_inputs);
    dequantise(job.tensor->type, job.tensor->data.data(), num_outputs * num_inputs,
               out.floats.data());
  }
  file_.release(*job.tensor);
  return {};
}

Status want_layer(const DecoderSpec& spec, int index, WeightLoader& loader, LayerWeights& out) {
  const LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  const AttentionSpec& a = layer.attention;
  const int hidden = spec.config.hidden_size;
  const int ffn = spec.config.ffn_size;
  const int q_width = a.num_heads * a.head_dim;
  const int kv_width = a.num_kv_heads * a.head_dim;
  const std::string prefix = "blk." + std::to_string(index) + ".";
  IKV_RETURN_IF_ERROR(loader.read_vector(prefix + "attn_norm.weight", hidden, out.attention_norm));
  IKV_RETURN_IF_ERROR(loader.want_linear(prefix + "attn_q", q_width, hidden, out.q));
  IKV_RETURN_IF_ERROR(loader.want_linear(prefix + "attn_k", kv_width, hidden, out.k));
  IKV_RETURN_IF_ERROR(loader.want_linear(prefix + "attn_v", kv_width, hidden, out.v));
  IKV_RETURN_IF_ERROR(
      loader.want_linear(prefix + "attn_output", hidden, q_width, out.attention_output));
  if (layer.qk_norm) {
    IKV_RETURN_IF_ERROR(loader.read_vector(prefix + "attn_q_norm.weight", a.head_dim, out.q_norm));
    IKV_RETURN_IF_ERROR(loader.read_vector(prefix + "attn_k_norm.weight", a.head_dim, out.k_norm));
  }
  if (layer.post_norms) {
    IKV_RETURN_IF_ERROR(
        loader.read_vector(prefix + "post_attention_norm.weight", hidden, out.post_attention_norm));
    IKV_RETURN_IF_ERROR(
        loader.read_vector(prefix + "post_ffw_norm.weight", hidden, out.post_ffn_norm));
  }
  IKV_RETURN_IF_ERROR(loader.read_vector(prefix + "ffn_norm.weight", hidden, out.ffn_norm));
  IKV_RETURN_IF_ERROR(loader.want_linear(prefix + "ffn_gate", ffn, hidden, out.gate));
  IKV_RETURN_IF_ERROR(loader.want_linear(prefix + "ffn_up", ffn, hidden, out.up));
  return loader.want_linear(prefix + "ffn_down", hidden, ffn, out.down);
}

// What metadata and tokenizer say of the vocabulary must agree with the embedding.
Status check_vocab_size(const GgufFile& file, const ModelConfig& config) {
  const ModelMetadata metadata(file, config.architecture);
  IKV_ASSIGN_OR_RETURN(const int declared,
                       metadata.integer("vocab_size", 1, kMaxVocab, config.vocab_size));
  int64_t num_tokens = declared;
  if (file.find("tokenizer.ggml.tokens") != nullptr) {
    IKV_ASSIGN_OR_RETURN(const auto tokens, file.strings("tokenizer.ggml.tokens"));
    num_tokens = static_cast<int64_t>(tokens.size());
  }
  if (declared != config.vocab_size || num_tokens != config.vocab_size) {
    return invalid_file("the embedding has " + std::to_string(config.vocab_size) +
                        " rows, but the tokenizer has " + std::to_string(num_tokens) +
                        " tokens and " + metadata.key("vocab_size") + " says " +
                        std::to_string(declared));
  }
  return {};
}

// The number of tokens is the number of the embedding's rows.
Status read_vocab_size(const GgufFile& file, ModelConfig& config) {
  IKV_ASSIGN_OR_RETURN(const GgufTensor* embedding,
                       find_matrix(file, "token_embd.weight", 0, config.hidden_size));
  const uint64_t rows = embedding->dims.size() > 1 ? embedding->dims[1] : 1;
  if (rows > static_cast<uint64_t>(kMaxVocab)) {
    return invalid_file("the embedding has " + std::to_string(rows) + " rows; at most " +
                        std::to_string(kMaxVocab) + " are supported");
  }
  config.vocab_size = static_cast<int>(rows);
  return check_vocab_size(file, config);
}

}  // namespace

uint64_t DecoderWeights::size_bytes() const {
  uint64_t total = embedding.size_bytes() + output_norm.size() * sizeof(float);
  if (untied_output) total += untied_output->size_bytes();
  for (const LayerWeights& layer : layers) {
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attention_output, &layer.gate,
                                 &layer.up, &layer.down}) {
      total += linear->size_bytes();
    }
    for (const auto* norm : {&layer.attention_norm, &layer.q_norm, &layer.k_norm,
                             &layer.post_attention_norm, &layer.ffn_norm, &layer.post_ffn_norm}) {
      total += norm->size() * sizeof(float);
    }
  }
  return total;
}

Result<std::unique_ptr<DecoderWeights>> load_weights(const GgufFile& file,
                                                     const ModelOptions& options,
                                                     ThreadPool& threads, DecoderSpec& spec) {
  ModelConfig& config = spec.config;
  IKV_RETURN_IF_ERROR(read_vocab_size(file, config));
  auto weights = std::make_unique<DecoderWeights>();
  WeightLoader loader(file, options, threads);
  IKV_RETURN_IF_ERROR(
      loader.want_linear("token_embd", config.vocab_size, config.hidden_size, weights->embedding));
  weights->layers.resize(spec.layers.size());  // before pointers into it are queued
  for (int i = 0; i < config.num_layers; ++i) {
    IKV_RETURN_IF_ERROR(want_layer(spec, i, loader, weights->layers[static_cast<size_t>(i)]));
  }
  IKV_RETURN_IF_ERROR(
      loader.read_vector("output_norm.weight", config.hidden_size, weights->output_norm));
  config.tied_output = !has_tensor(file, "output.weight");
  if (!config.tied_output) {
    weights->untied_output.emplace();
    IKV_RETURN_IF_ERROR(loader.want_linear("output", config.vocab_size, config.hidden_size,
                                           *weights->untied_output));
  }
  IKV_RETURN_IF_ERROR(loader.check_nothing_left());
  IKV_RETURN_IF_ERROR(loader.pack_all());
  for (const GgufTensor& tensor : file.tensors()) {
    uint64_t num_elements = 1;
    for (const uint64_t dim : tensor.dims) num_elements *= dim;
    config.num_parameters += num_elements;
  }
  return weights;
}

}  // namespace ikv
