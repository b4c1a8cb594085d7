#include "bench_machine.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "gguf/reader.h"
#include "model/architecture.h"
#include "model_summary.h"

namespace ikv {
namespace {

Result<KvFormats> parse_formats(const EngineConfig& config) {
  std::optional<KvFormat> k = parse_kv_format(config.cache_type_k);
  std::optional<KvFormat> v = parse_kv_format(config.cache_type_v);
  if (!k || !v) return invalid_argument("unknown cache type");
  return KvFormats{*k, *v};
}

}  // namespace

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Result<ModelCosts> read_model_costs(const EngineConfig& config) {
  Result<KvFormats> formats = parse_formats(config);
  if (!formats.ok()) return formats.error();
  Result<GgufFile> file = GgufFile::open(config.model_path);
  if (!file.ok()) return file.error();
  Result<DecoderSpec> spec = describe_decoder(*file);
  if (!spec.ok()) return spec.error();
  Result<double> kv_bytes = kv_bytes_per_token(*spec, *formats, config.block_tokens);
  if (!kv_bytes.ok()) return kv_bytes.error();
  ModelCosts costs;
  costs.kv_bytes_per_token = *kv_bytes;
  costs.head_products = static_cast<double>(spec->config.vocab_size) * spec->config.hidden_size;
  for (const LayerSpec& layer : spec->layers) {
    const AttentionSpec& attention = layer.attention;
    const double hidden = spec->config.hidden_size;
    const double query_size = static_cast<double>(attention.num_heads) * attention.head_dim;
    const double kv_size = static_cast<double>(attention.num_kv_heads) * attention.head_dim;
    costs.layer_products +=
        2 * hidden * (query_size + kv_size) + 3 * hidden * spec->config.ffn_size;
    costs.attention_products += 2 * query_size;  // q·k, and the weighted sum of v
  }
  return costs;
}

}  // namespace ikv
