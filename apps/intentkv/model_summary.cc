#include "model_summary.h"

#include <utility>

#include "intentkv/config.h"
#include "model/architecture.h"
#include "text/tokenizer_gguf.h"
#ifdef IKV_HAVE_KV_CODEC
#include "quant/kv_codec.h"
#endif

namespace ikv {
namespace {

// A string value of the file, or empty: here a missing name is no fault.
std::string text_of(const GgufFile& file, std::string_view key) {
  Result<std::string_view> text = file.string(key);
  return text.ok() ? std::string(*text) : std::string();
}

void count_tensors(const GgufFile& file, ModelSummary& summary) {
  for (const GgufTensor& tensor : file.tensors()) {
    uint64_t elements = 1;
    for (uint64_t dim : tensor.dims) elements *= dim;  // checked against the file's size on opening
    summary.num_parameters += elements;
    summary.bytes_by_type[std::string(weight_type_info(tensor.type).name)] += tensor.data.size();
  }
}

Status describe(const GgufFile& file, ModelSummary& summary) {
  Result<DecoderSpec> spec = describe_decoder(file);
  if (!spec.ok()) {
    summary.refusal = spec.error().message;
    return {};
  }
  summary.config = spec->config;
  // What only the tensors tell; loading finds it too, but reads all weights for it.
  summary.config->tied_output = file.find_tensor("output.weight") == nullptr;
#ifdef IKV_HAVE_KV_CODEC
  const int block_tokens = EngineConfig().block_tokens;
  for (KvFormat format :
       {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16, KvFormat::kInt8, KvFormat::kInt4}) {
    Result<double> bytes = kv_bytes_per_token(*spec, {format, format}, block_tokens);
    if (!bytes.ok()) return bytes.error();
    summary.kv_bytes_per_token[std::string(kv_format_name(format))] = *bytes;
  }
#endif
  return {};
}

}  // namespace

#ifdef IKV_HAVE_KV_CODEC
Result<double> kv_bytes_per_token(const DecoderSpec& spec, KvFormats formats, int block_tokens) {
  double bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    Result<KvPageLayout> layout =
        make_kv_page_layout(formats, layer.attention.head_dim, block_tokens);
    if (!layout.ok()) return layout.error();
    bytes += static_cast<double>(layout->page_bytes) * layer.attention.num_kv_heads / block_tokens;
  }
  return bytes;
}
#endif

Result<ModelSummary> summarise_model(const GgufFile& file) {
  ModelSummary summary;
  summary.path = file.path();
  summary.file_bytes = file.file_bytes();
  summary.gguf_version = file.version();
  summary.name = text_of(file, "general.name");
  summary.architecture = text_of(file, "general.architecture");
  summary.tokenizer_model = text_of(file, "tokenizer.ggml.model");
  summary.pre_tokenizer = text_of(file, "tokenizer.ggml.pre");
  Result<std::optional<std::string>> chat_template = chat_template_from_gguf(file);
  if (!chat_template.ok()) return chat_template.error();
  summary.chat_template = chat_template->value_or("");
  Result<std::span<const std::string_view>> tokens = file.strings("tokenizer.ggml.tokens");
  if (tokens.ok()) summary.vocab_size = tokens->size();
  count_tensors(file, summary);
  Status described = describe(file, summary);
  if (!described.ok()) return described.error();
  return summary;
}

}  // namespace ikv
