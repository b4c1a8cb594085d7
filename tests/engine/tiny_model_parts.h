// The tiny model and codebooks for it, for tests below the Engine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "calibration/calibrate.h"
#include "engine_fixture.h"
#include "gguf/reader.h"
#include "kv/key_codes.h"
#include "model/model.h"

namespace ikv::testing {

/// The model of tiny_model_path(); null after a failed expectation.
inline std::unique_ptr<Model> load_tiny_model(ThreadPool& threads) {
  auto file = GgufFile::open(tiny_model_path());
  EXPECT_TRUE(file.ok()) << file.error().message;
  if (!file.ok()) return nullptr;
  auto model = Model::load(*file, {}, threads);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? std::move(model).value() : nullptr;
}

/// Codebooks of random centroids: what is tested must not depend on good ones.
inline KeyCodebooks random_codebooks(const Model& model, std::mt19937& random) {
  const std::vector<KvLayerShape> layers = kv_layer_shapes(model);
  auto books = KeyCodebooks::create(KeyCodeKind::kProduct, layers);
  EXPECT_TRUE(books.ok());
  if (!books.ok()) return {};
  std::normal_distribution<float> normal;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (int head = 0; head < layers[layer].num_kv_heads; ++head) {
      std::vector<float> centroids(static_cast<size_t>(layers[layer].head_dim) * kKeyCentroids);
      for (float& x : centroids) x = normal(random);
      books->set_head(static_cast<int>(layer), head, centroids);
    }
  }
  return std::move(books).value();
}

}  // namespace ikv::testing
