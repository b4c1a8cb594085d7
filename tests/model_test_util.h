// What model tests share: tiny models in memory, their reference, and forwards over them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/contiguous_attention.h"
#include "gguf/reader.h"
#include "gguf/testing/tiny_model.h"
#include "model/model.h"
#include "model_reference_forward.h"
#include "quant/dequantise.h"

namespace ikv::testing {

/// A loaded tiny model together with the bytes that it came from.
struct LoadedModel {
  std::vector<std::byte> bytes;
  std::unique_ptr<Model> model;
  ReferenceModel reference;
};

inline Result<std::unique_ptr<Model>> load_bytes(const std::vector<std::byte>& bytes,
                                                 ThreadPool& threads, ComputePath path) {
  IKV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes, "test.gguf"));
  ModelOptions options;
  options.path = path;
  return Model::load(file, options, threads);
}

inline ReferenceModel make_reference(const std::vector<std::byte>& bytes, const Model& model) {
  ReferenceModel reference;
  const ModelConfig& config = model.config();
  reference.num_layers = config.num_layers;
  reference.hidden_size = config.hidden_size;
  reference.num_heads = config.num_heads;
  reference.num_kv_heads = config.num_kv_heads;
  reference.head_dim = config.head_dim;
  for (int i = 0; i < config.head_dim; i += 2) {
    reference.inverse_freq.push_back(std::pow(10000.0, -static_cast<double>(i) / config.head_dim));
  }
  const auto file = GgufFile::parse(bytes, "test.gguf");
  for (const GgufTensor& tensor : file->tensors()) {
    size_t num_elements = 1;
    for (const uint64_t dim : tensor.dims) num_elements *= dim;
    std::vector<float> values(num_elements);
    dequantise(tensor.type, tensor.data.data(), num_elements, values.data());
    reference.weights[std::string(tensor.name)] = std::move(values);
  }
  return reference;
}

inline LoadedModel load_tiny(const TinyModelOptions& options, ThreadPool& threads,
                             ComputePath path) {
  LoadedModel loaded;
  loaded.bytes = tiny_model(options).finish();
  auto model = load_bytes(loaded.bytes, threads, path);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  loaded.model = std::move(model).value();
  loaded.reference = make_reference(loaded.bytes, *loaded.model);
  return loaded;
}

/// Rows [begin, begin + tokens.size()) of one sequence.
struct Part {
  int sequence = 0;
  std::vector<TokenId> tokens;
};

/// One forward over `parts`, one after the other; logits of `logit_rows`, or of every row if empty.
inline std::vector<float> run_parts(const Model& model, ContiguousAttention& attention,
                                    Workspace& workspace, const std::vector<Part>& parts,
                                    std::vector<int32_t> logit_rows = {}) {
  std::vector<ContiguousRow> rows;
  std::vector<TokenId> tokens;
  for (const Part& part : parts) {
    int position = attention.length(part.sequence);
    for (const TokenId token : part.tokens) {
      rows.push_back({part.sequence, position++});
      tokens.push_back(token);
    }
  }
  if (logit_rows.empty()) {
    for (size_t i = 0; i < rows.size(); ++i) logit_rows.push_back(static_cast<int32_t>(i));
  }
  std::vector<float> logits(logit_rows.size() * static_cast<size_t>(model.config().vocab_size));
  EXPECT_TRUE(attention.begin_step(rows).ok());
  const Status status = model.forward({tokens, logit_rows}, attention, workspace, logits.data());
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return logits;
}

}  // namespace ikv::testing
