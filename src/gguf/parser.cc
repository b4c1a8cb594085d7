#include "gguf/parser.h"

#include <algorithm>
#include <bit>
#include <utility>

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

namespace ikv {
namespace {

constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxKeyBytes = 65535;      // docs/gguf.md
constexpr uint64_t kMaxTensorNameBytes = 64;  // docs/gguf.md

// Least bytes of an entry: length, one character, type, one byte of value.
constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;
// Length, one character, number of dimensions, one dimension, type, offset.
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Numbers of GGUF's metadata value types.
enum ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Bytes of one value; of a string its length; 0 if the type is unknown.
uint64_t least_bytes_of(uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kUint64:
    case kInt64:
    case kFloat64:
    case kString:
      return 8;
    default:
      return 0;
  }
}

std::string quoted(std::string_view name) {
  std::string text("'");
  return text.append(name).append("'");
}

}  // namespace

Error GgufParser::bad(const std::string& what) const {
  return invalid_file("'" + file_.path_ + "' is not a valid GGUF file: " + what + " (at byte " +
                      std::to_string(at_) + " of " + std::to_string(bytes_.size()) + ")");
}

// A count of things of at least `least_bytes` each.
Result<uint64_t> GgufParser::read_count(const char* what, uint64_t least_bytes, uint64_t limit) {
  IKV_ASSIGN_OR_RETURN(const uint64_t count, read<uint64_t>(what));
  if (count > bytes_left() / least_bytes) {
    return bad(std::string(what) + " is " + std::to_string(count) +
               ", more than the rest of the file can hold; is the download complete?");
  }
  if (count > limit) {
    return bad(std::string(what) + " is " + std::to_string(count) + "; at most " +
               std::to_string(limit) + " are read");
  }
  return count;
}

Result<std::string_view> GgufParser::read_string(const char* what) {
  IKV_ASSIGN_OR_RETURN(const uint64_t length, read_count(what, 1, UINT64_MAX));
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
  at_ += length;
  return text;
}

// A key or a tensor's name: it stands in messages, so that it must be printable.
Result<std::string_view> GgufParser::read_name(const char* what, uint64_t limit_bytes) {
  IKV_ASSIGN_OR_RETURN(const std::string_view name, read_string(what));
  if (name.empty() || name.size() > limit_bytes) {
    return bad(std::string(what) + " is " + std::to_string(name.size()) + "; it must be 1 to " +
               std::to_string(limit_bytes));
  }
  for (const char c : name) {
    if (c < 0x20 || c > 0x7E) {
      return bad("a name of which " + std::string(what) + " was read holds byte " +
                 std::to_string(static_cast<unsigned char>(c)) +
                 "; keys and tensor names are printable ASCII");
    }
  }
  return name;
}

Result<bool> GgufParser::read_bool() {
  IKV_ASSIGN_OR_RETURN(const uint8_t value, read<uint8_t>("a boolean"));
  if (value > 1) return bad("a boolean holds " + std::to_string(value));
  return value == 1;
}

Status GgufParser::read_header() {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    return bad("it does not begin with 'GGUF'");
  }
  at_ = 4;
  IKV_ASSIGN_OR_RETURN(file_.version_, read<uint32_t>("the version"));
  if (file_.version_ != 2 && file_.version_ != 3) {
    const bool swapped = (file_.version_ & 0xFFFFu) == 0 && file_.version_ != 0;
    return unsupported(
        quoted(file_.path_) + " is " +
        (swapped ? "a big-endian GGUF file" : "GGUF version " + std::to_string(file_.version_)) +
        "; supported: little-endian versions 2 and 3");
  }
  IKV_ASSIGN_OR_RETURN(num_tensors_,
                       read_count("the number of tensors", kLeastTensorBytes, kMaxGgufTensors));
  IKV_ASSIGN_OR_RETURN(num_keys_,
                       read_count("the number of metadata keys", kLeastKeyBytes, kMaxGgufKeys));
  return {};
}

// The caller has checked that the file holds them.
template <typename T>
GgufValue GgufParser::read_numbers(uint64_t count) {
  std::vector<double> numbers(count);
  for (double& number : numbers) {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    number = static_cast<double>(value);
  }
  return GgufArray(std::move(numbers));
}

Result<GgufValue> GgufParser::read_array() {
  IKV_ASSIGN_OR_RETURN(const uint32_t type, read<uint32_t>("an array's element type"));
  if (type == kArray) {
    return unsupported(quoted(file_.path_) + " has an array of arrays in its metadata (at byte " +
                       std::to_string(at_) + "); only plain arrays are supported");
  }
  const uint64_t least_bytes = least_bytes_of(type);
  if (least_bytes == 0) return bad("array elements of unknown type " + std::to_string(type));
  IKV_ASSIGN_OR_RETURN(const uint64_t count,
                       read_count("an array's length", least_bytes, kMaxGgufArrayElements));
  switch (type) {
    case kUint8:
      return read_numbers<uint8_t>(count);
    case kInt8:
      return read_numbers<int8_t>(count);
    case kUint16:
      return read_numbers<uint16_t>(count);
    case kInt16:
      return read_numbers<int16_t>(count);
    case kUint32:
      return read_numbers<uint32_t>(count);
    case kInt32:
      return read_numbers<int32_t>(count);
    case kFloat32:
      return read_numbers<float>(count);
    case kUint64:
      return read_numbers<uint64_t>(count);
    case kInt64:
      return read_numbers<int64_t>(count);
    case kFloat64:
      return read_numbers<double>(count);
    case kBool: {
      std::vector<double> flags(count);
      for (double& flag : flags) {
        IKV_ASSIGN_OR_RETURN(const bool value, read_bool());
        flag = value ? 1.0 : 0.0;
      }
      return GgufValue(GgufArray(std::move(flags)));
    }
    default:
      break;
  }
  std::vector<std::string_view> texts;
  texts.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    IKV_ASSIGN_OR_RETURN(const std::string_view text,
                         read_string("the length of an array's string"));
    texts.push_back(text);
  }
  return GgufValue(GgufArray(std::move(texts)));
}

Result<GgufValue> GgufParser::read_value(uint32_t type) {
  const auto scalar = [&](auto sample, auto wide) -> Result<GgufValue> {
    IKV_ASSIGN_OR_RETURN(const auto value, read<decltype(sample)>("a metadata value"));
    return GgufValue(static_cast<decltype(wide)>(value));
  };
  switch (type) {
    case kUint8:
      return scalar(uint8_t{}, uint64_t{});
    case kInt8:
      return scalar(int8_t{}, int64_t{});
    case kUint16:
      return scalar(uint16_t{}, uint64_t{});
    case kInt16:
      return scalar(int16_t{}, int64_t{});
    case kUint32:
      return scalar(uint32_t{}, uint64_t{});
    case kInt32:
      return scalar(int32_t{}, int64_t{});
    case kFloat32:
      return scalar(float{}, double{});
    case kUint64:
      return scalar(uint64_t{}, uint64_t{});
    case kInt64:
      return scalar(int64_t{}, int64_t{});
    case kFloat64:
      return scalar(double{}, double{});
    case kArray:
      return read_array();
    case kBool: {
      IKV_ASSIGN_OR_RETURN(const bool value, read_bool());
      return GgufValue(value);
    }
    case kString: {
      IKV_ASSIGN_OR_RETURN(const std::string_view text,
                           read_string("the length of a metadata string"));
      return GgufValue(text);
    }
    default:
      return bad("a metadata value of unknown type " + std::to_string(type));
  }
}

Status GgufParser::read_metadata() {
  file_.metadata_.reserve(num_keys_);
  for (uint64_t i = 0; i < num_keys_; ++i) {
    IKV_ASSIGN_OR_RETURN(const std::string_view key,
                         read_name("the length of a metadata key", kMaxKeyBytes));
    if (!file_.metadata_index_.emplace(key, file_.metadata_.size()).second) {
      return bad("metadata key " + quoted(key) + " appears twice");
    }
    IKV_ASSIGN_OR_RETURN(const uint32_t type, read<uint32_t>("a metadata value's type"));
    IKV_ASSIGN_OR_RETURN(GgufValue value, read_value(type));
    file_.metadata_.emplace_back(key, std::move(value));
  }
  return check_whole_model();
}

Status GgufParser::check_whole_model() const {
  const GgufValue* count = file_.find("split.count");
  const uint64_t* num_parts = count == nullptr ? nullptr : std::get_if<uint64_t>(count);
  if (num_parts == nullptr || *num_parts <= 1) return {};
  return unsupported(quoted(file_.path_) + " is one part of a model in " +
                     std::to_string(*num_parts) +
                     " files; merge them into one first (llama-gguf-split --merge does)");
}

Status GgufParser::read_dims(GgufTensor& tensor, uint64_t& num_elements) {
  const std::string name = "tensor " + quoted(tensor.name);
  IKV_ASSIGN_OR_RETURN(const uint32_t num_dims, read<uint32_t>("a tensor's number of dimensions"));
  if (num_dims == 0 || num_dims > kMaxDims) {
    return bad(name + " has " + std::to_string(num_dims) + " dimensions; it must have 1 to " +
               std::to_string(kMaxDims));
  }
  // No format packs more than 256 elements into 84 bytes, so that four a byte bound the product and
  // it cannot overflow.
  const uint64_t most_elements = bytes_.size() * 4;
  num_elements = 1;
  for (uint32_t i = 0; i < num_dims; ++i) {
    IKV_ASSIGN_OR_RETURN(const uint64_t dim, read<uint64_t>("a tensor's dimensions"));
    if (dim == 0) return bad(name + " has a dimension of 0");
    if (dim > most_elements / num_elements) {
      return bad(name + " has a dimension of " + std::to_string(dim) +
                 ", more than the file can hold; is the download complete?");
    }
    num_elements *= dim;
    tensor.dims.push_back(dim);
  }
  return {};
}

// Returns the tensor's bytes.
Result<uint64_t> GgufParser::read_tensor_info(GgufTensor& tensor) {
  IKV_ASSIGN_OR_RETURN(tensor.name,
                       read_name("the length of a tensor's name", kMaxTensorNameBytes));
  const std::string name = "tensor " + quoted(tensor.name);
  uint64_t num_elements = 0;
  IKV_RETURN_IF_ERROR(read_dims(tensor, num_elements));
  IKV_ASSIGN_OR_RETURN(const uint32_t type, read<uint32_t>("a tensor's type"));
  const WeightTypeInfo* info = find_weight_type(type);
  if (info == nullptr) {
    return unsupported(quoted(file_.path_) + ": " + name + " has weight type " +
                       ggml_type_name(type) + "; supported: " + supported_weight_types());
  }
  tensor.type = info->type;
  if (tensor.dims[0] % info->block_elements != 0) {
    return bad(name + " has rows of " + std::to_string(tensor.dims[0]) + " elements, which " +
               std::string(info->name) + " cannot store in blocks of " +
               std::to_string(info->block_elements));
  }
  IKV_ASSIGN_OR_RETURN(tensor.file_offset, read<uint64_t>("a tensor's offset"));
  return num_elements / info->block_elements * info->block_bytes;
}

Status GgufParser::read_tensor_infos() {
  file_.tensors_.reserve(num_tensors_);
  for (uint64_t i = 0; i < num_tensors_; ++i) {
    GgufTensor tensor;
    IKV_ASSIGN_OR_RETURN(const uint64_t num_bytes, read_tensor_info(tensor));
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return bad("tensor " + quoted(tensor.name) + " appears twice");
    }
    file_.tensors_.push_back(std::move(tensor));
    tensor_bytes_.push_back(num_bytes);
  }
  return {};
}

Result<uint64_t> GgufParser::alignment() const {
  const GgufValue* value = file_.find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  const uint64_t* number = std::get_if<uint64_t>(value);
  if (number == nullptr || !std::has_single_bit(*number) || *number > kMaxAlignment) {
    return bad("general.alignment is " +
               (number == nullptr ? describe_gguf_value(*value) : std::to_string(*number)) +
               "; it must be a power of two up to " + std::to_string(kMaxAlignment));
  }
  return *number;
}

Status GgufParser::place_tensors() {
  IKV_ASSIGN_OR_RETURN(const uint64_t alignment, this->alignment());
  if (file_.tensors_.empty()) return {};
  const uint64_t base = (at_ + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < file_.tensors_.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    const std::string name = "tensor " + quoted(tensor.name);
    if (tensor.file_offset % alignment != 0) {
      return bad(name + " is at offset " + std::to_string(tensor.file_offset) +
                 ", which is not aligned to " + std::to_string(alignment));
    }
    if (base > bytes_.size() || tensor.file_offset > bytes_.size() - base ||
        tensor_bytes_[i] > bytes_.size() - base - tensor.file_offset) {
      return bad(name + " reaches beyond the end of the file; is the download complete?");
    }
    tensor.file_offset += base;
    tensor.data = bytes_.subspan(tensor.file_offset, tensor_bytes_[i]);
  }
  return check_overlap();
}

Status GgufParser::check_overlap() const {
  std::vector<const GgufTensor*> order;
  order.reserve(file_.tensors_.size());
  for (const GgufTensor& tensor : file_.tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->file_offset < b->file_offset;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->file_offset + order[i - 1]->data.size() > order[i]->file_offset) {
      return bad("tensors " + quoted(order[i - 1]->name) + " and " + quoted(order[i]->name) +
                 " overlap");
    }
  }
  return {};
}

Status GgufParser::parse() {
  IKV_RETURN_IF_ERROR(read_header());
  IKV_RETURN_IF_ERROR(read_metadata());
  IKV_RETURN_IF_ERROR(read_tensor_infos());
  return place_tensors();
}

}  // namespace ikv
