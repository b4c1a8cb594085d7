#include "gguf/reader.h"

#include "gguf/parser.h"

namespace ikv {
namespace {

template <typename T>
std::string array_text(const std::vector<T>& values, const char* noun) {
  return "an array of " + std::to_string(values.size()) + " " + noun;
}

}  // namespace

uint64_t GgufTensor::num_elements() const {
  const WeightTypeInfo& info = weight_type_info(type);
  return data.size() / info.block_bytes * info.block_elements;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  GgufFile file;
  file.bytes_ = bytes;
  file.path_ = name;
  IKV_RETURN_IF_ERROR(GgufParser(file).parse());
  return file;
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  IKV_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  IKV_ASSIGN_OR_RETURN(GgufFile file, parse(mapped.bytes(), path));
  file.file_ = std::move(mapped);
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto it = metadata_index_.find(key);
  return it == metadata_index_.end() ? nullptr : &metadata_[it->second].second;
}

Error GgufFile::wrong_type(std::string_view key, std::string_view expected) const {
  const GgufValue* value = find(key);
  std::string text("'");
  text.append(path_).append("' has ");
  text += value == nullptr ? "no metadata key '" : describe_gguf_value(*value) + " under the key '";
  text.append(key).append("'; ").append(expected).append(" is needed there");
  return invalid_file(std::move(text));
}

Result<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
  if (text == nullptr) return wrong_type(key, "a string");
  return *text;
}

Result<std::span<const std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  const auto* texts =
      array == nullptr ? nullptr : std::get_if<std::vector<std::string_view>>(array);
  if (texts == nullptr) return wrong_type(key, "an array of strings");
  return std::span<const std::string_view>(*texts);
}

Result<std::span<const double>> GgufFile::numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
  const auto* numbers = array == nullptr ? nullptr : std::get_if<std::vector<double>>(array);
  if (numbers == nullptr) return wrong_type(key, "an array of numbers");
  return std::span<const double>(*numbers);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::release(const GgufTensor& tensor) const {
  file_.release(tensor.file_offset, tensor.data.size());
}

std::string describe_gguf_value(const GgufValue& value) {
  if (std::holds_alternative<bool>(value)) return "a boolean";
  if (std::holds_alternative<std::string_view>(value)) return "a string";
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    return std::visit(
        [](const auto& values) {
          using Element = typename std::decay_t<decltype(values)>::value_type;
          return array_text(values, std::is_same_v<Element, double> ? "numbers" : "strings");
        },
        *array);
  }
  return "a number";
}

}  // namespace ikv
