// Random page lists for tests and benchmarks of attention.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "attention/paged_attention.h"
#include "base/aligned_buffer.h"
#include "quant/kv_codec.h"

namespace ikv::testing {

/// A page list whose pages it owns. Keys have a few large channels and values are normal, as in
/// real models.
class RandomCache {
 public:
  RandomCache(int head_dim, int block_tokens, uint32_t seed)
      : head_dim_(head_dim), block_tokens_(block_tokens), random_(seed) {}

  /// Appends a page of `num_tokens` tokens in `formats` after the last page's position.
  void append(KvFormats formats, int num_tokens, float key_size = 1.0f, int shift = 0) {
    const auto dim = static_cast<size_t>(head_dim_);
    std::vector<float> k(static_cast<size_t>(num_tokens) * dim), v(k.size());
    for (size_t i = 0; i < k.size(); ++i) {
      k[i] = normal_(random_) * key_size * (i % dim % 31 == 5 ? 6.0f : 1.0f);
      v[i] = normal_(random_);
    }
    const KvPageLayout plain =
        make_kv_page_layout({KvFormat::kF32, KvFormat::kF32}, head_dim_, block_tokens_).value();
    std::vector<std::byte> source(plain.page_bytes);
    write_kv_rows(plain, source.data(), 0, num_tokens, k.data(), v.data(), dim);
    layouts_.push_back(std::make_unique<KvPageLayout>(
        make_kv_page_layout(formats, head_dim_, block_tokens_).value()));
    const KvPageLayout& layout = *layouts_.back();
    auto bytes = AlignedBuffer::allocate(layout.page_bytes).value();
    convert_kv_page(plain, source.data(), num_tokens, layout, bytes.data());
    pages_.push_back({bytes.data(), &layout, next_, num_tokens, shift});
    buffers_.push_back(std::move(bytes));
    next_ += num_tokens;
  }

  std::vector<KvPageView>& pages() { return pages_; }
  LogicalPos next_position() const { return next_; }

  /// Floats of standard normal distribution times `size`.
  std::vector<float> normal(size_t count, float size = 1.0f) {
    std::vector<float> out(count);
    for (float& x : out) x = normal_(random_) * size;
    return out;
  }

  std::mt19937& random() { return random_; }

 private:
  int head_dim_, block_tokens_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  LogicalPos next_ = 0;
  std::vector<std::unique_ptr<KvPageLayout>> layouts_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<KvPageView> pages_;
};

}  // namespace ikv::testing
