#include "calibration/model_fingerprint.h"

#include <xxhash.h>

#include <array>
#include <cstdio>
#include <memory>
#include <span>
#include <type_traits>
#include <variant>

#include "base/check.h"

namespace ikv {
namespace {

constexpr size_t kWholeBytes = 256 << 10;
constexpr size_t kNumStretches = 64;
constexpr size_t kStretchBytes = kWholeBytes / kNumStretches;

// Every part goes in with its length or kind before it, so that no two lists of parts collide.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState(), &XXH3_freeState) {
    IKV_CHECK(state_ != nullptr);
    XXH3_128bits_reset(state_.get());
  }

  void add_bytes(const void* data, size_t size) {
    if (size > 0) XXH3_128bits_update(state_.get(), data, size);
  }
  void add_u64(uint64_t value) {
    std::array<unsigned char, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    }
    add_bytes(bytes.data(), bytes.size());
  }
  void add_double(double value) { add_bytes(&value, sizeof(value)); }
  void add_text(std::string_view text) {
    add_u64(text.size());
    add_bytes(text.data(), text.size());
  }

  std::string finish() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    std::string text;
    for (const unsigned char byte : canonical.digest) {
      char hex[3];
      std::snprintf(hex, sizeof hex, "%02x", byte);
      text += hex;
    }
    return text;
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

void add_value(const GgufValue& value, Hasher& hasher) {
  hasher.add_u64(value.index());
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          hasher.add_u64(v.index());
          if (const auto* texts = std::get_if<std::vector<std::string_view>>(&v)) {
            hasher.add_u64(texts->size());
            for (const std::string_view text : *texts) hasher.add_text(text);
          } else {
            const auto& numbers = std::get<std::vector<double>>(v);
            hasher.add_u64(numbers.size());
            hasher.add_bytes(numbers.data(), numbers.size() * sizeof(double));
          }
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          hasher.add_text(v);
        } else if constexpr (std::is_same_v<T, double>) {
          hasher.add_double(v);
        } else {
          hasher.add_u64(static_cast<uint64_t>(v));
        }
      },
      value);
}

void add_data(std::span<const std::byte> data, Hasher& hasher) {
  hasher.add_u64(data.size());
  if (data.size() <= kWholeBytes) {
    hasher.add_bytes(data.data(), data.size());
    return;
  }
  for (size_t i = 0; i < kNumStretches; ++i) {
    // 128 bits: a tensor of 2^58 bytes times 63 would wrap.
    const size_t begin = static_cast<size_t>(
        static_cast<unsigned __int128>(data.size() - kStretchBytes) * i / (kNumStretches - 1));
    hasher.add_bytes(data.data() + begin, kStretchBytes);
  }
}

}  // namespace

std::string model_fingerprint(const GgufFile& file) {
  Hasher hasher;
  hasher.add_u64(file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    hasher.add_text(key);
    add_value(value, hasher);
  }
  hasher.add_u64(file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) {
    hasher.add_text(tensor.name);
    hasher.add_u64(static_cast<uint64_t>(tensor.type));
    hasher.add_u64(tensor.dims.size());
    for (const uint64_t dim : tensor.dims) hasher.add_u64(dim);
    add_data(tensor.data, hasher);
  }
  return hasher.finish();
}

}  // namespace ikv
