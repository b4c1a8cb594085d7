// The GGUF reader over foreign bytes: what it accepts must keep its promises, and everything that
// it hands out must be readable.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gguf/reader.h"
#include "quant/dequantise.h"

namespace {

using namespace ikv;

// Results that the compiler must not leave out.
volatile double g_sink;

void require(bool condition) {
  if (!condition) std::abort();
}

bool printable(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c <= 0x7E; });
}

void read_text(std::string_view text) {
  double sum = 0;
  for (const char c : text) sum += c;
  g_sink = sum;
}

void walk_metadata(const GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    require(printable(key));
    require(file.find(key) == &value);
    require(!describe_gguf_value(value).empty());
    const auto text = file.string(key);
    const auto texts = file.strings(key);
    const auto numbers = file.numbers(key);
    const int num_readings = (text.ok() ? 1 : 0) + (texts.ok() ? 1 : 0) + (numbers.ok() ? 1 : 0);
    const bool is_scalar = !std::holds_alternative<std::string_view>(value) &&
                           !std::holds_alternative<GgufArray>(value);
    require(num_readings == (is_scalar ? 0 : 1));
    if (text.ok()) read_text(*text);
    if (texts.ok()) {
      for (const std::string_view one : *texts) read_text(one);
    }
    if (numbers.ok()) {
      for (const double number : *numbers) g_sink = number;
    }
    if (!text.ok()) require(!text.error().message.empty());
  }
}

void walk_tensor(const GgufFile& file, const GgufTensor& tensor, std::span<const std::byte> whole) {
  require(printable(tensor.name) && file.find_tensor(tensor.name) == &tensor);
  require(!tensor.dims.empty() && tensor.dims.size() <= 4);
  unsigned __int128 num_elements = 1;
  for (const uint64_t dim : tensor.dims) {
    require(dim > 0);
    num_elements *= dim;
    require(num_elements <= UINT64_MAX);
  }
  require(tensor.num_elements() == num_elements);
  require(!tensor.data.empty());
  require(tensor.data.data() == whole.data() + tensor.file_offset);
  require(tensor.data.size() <= whole.size() - tensor.file_offset);
  const WeightTypeInfo& info = weight_type_info(tensor.type);
  require(tensor.dims[0] % info.block_elements == 0);
  std::vector<float> values(info.block_elements);
  dequantise(tensor.type, tensor.data.data(), values.size(), values.data());
  dequantise(tensor.type, tensor.data.last(info.block_bytes).data(), values.size(), values.data());
  for (const float value : values) g_sink = value;
}

void require_no_overlap(const GgufFile& file) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const GgufTensor& tensor : file.tensors()) {
    ranges.emplace_back(tensor.file_offset, tensor.file_offset + tensor.data.size());
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) require(ranges[i - 1].second <= ranges[i].first);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  Result<GgufFile> parsed = GgufFile::parse(bytes, "fuzz.gguf");
  if (!parsed.ok()) {
    require(parsed.error().code == ErrorCode::kInvalidFile ||
            parsed.error().code == ErrorCode::kUnsupported);
    require(parsed.error().message.find("'fuzz.gguf'") != std::string::npos);
    return 0;
  }
  const GgufFile file = std::move(parsed).value();
  walk_metadata(file);
  for (const GgufTensor& tensor : file.tensors()) walk_tensor(file, tensor, bytes);
  require_no_overlap(file);
  return 0;
}
