#include "oracle_data.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

namespace ikv::testing {
namespace {

using Json = nlohmann::ordered_json;

class Sha256 {
 public:
  Sha256() { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(const void* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string out;
    for (unsigned int i = 0; i < size; ++i) {
      out += "0123456789abcdef"[digest[i] >> 4];
      out += "0123456789abcdef"[digest[i] & 15];
    }
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

std::string environment_or(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::string golden_path(const std::string& name) {
  return std::string(IKV_SOURCE_DIR) + "/tests/golden/" + name;
}

Message parse_message(const Json& json) {
  Message message;
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
    if (json.at("role") == role_name(role)) message.role = role;
  }
  if (json.contains("content") && json["content"].is_string()) {
    message.content = json["content"].get<std::string>();
  }
  if (!json.contains("tool_calls") || !json["tool_calls"].is_array()) return message;
  for (const Json& call : json["tool_calls"]) {
    const Json& arguments = call.at("arguments");
    message.tool_calls.push_back(
        {call.value("id", ""), call.at("name").get<std::string>(),
         arguments.is_string() ? arguments.get<std::string>() : arguments.dump()});
  }
  return message;
}

Result<std::vector<Message>> load_messages(const OracleSegment& segment) {
  const std::string path = data_dir() + "/" + segment.file;
  std::ifstream file(path);
  if (!file) return make_error(ErrorCode::kNotFound, "cannot read '" + path + "'");
  std::string line;
  while (std::getline(file, line)) {
    const Json json = Json::parse(line);
    if (json.at("id") != segment.id) continue;
    std::vector<Message> messages;
    for (size_t i = segment.first; i <= segment.last; ++i) {
      messages.push_back(parse_message(json.at("messages").at(i)));
    }
    return messages;
  }
  return make_error(ErrorCode::kNotFound, path + " has no conversation '" + segment.id + "'");
}

// Reads `count` little-endian values at `bytes` and moves it on.
template <typename Stored, typename Value>
std::vector<Value> take(const char*& bytes, size_t count) {
  static_assert(std::endian::native == std::endian::little);
  std::vector<Value> out(count);
  for (Value& value : out) {
    Stored stored;
    std::memcpy(&stored, bytes, sizeof(stored));
    bytes += sizeof(stored);
    value = stored;
  }
  return out;
}

double log_sum_exp(const float* logits, size_t size) {
  const double largest = logits[arg_max(logits, size)];
  double sum = 0.0;
  for (size_t i = 0; i < size; ++i) sum += std::exp(logits[i] - largest);
  return largest + std::log(sum);
}

}  // namespace

std::string model_path() {
  return environment_or("IKV_TEST_MODEL",
                        std::string(IKV_SOURCE_DIR) + "/models/smollm2-135m-instruct-q4_1.gguf");
}

std::string data_dir() {
  return environment_or("IKV_DATA_DIR", std::string(IKV_SOURCE_DIR) + "/../shared/data");
}

Result<std::string> sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return make_error(ErrorCode::kNotFound, "cannot read '" + path + "'");
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0) {
    hash.add(buffer.data(), static_cast<size_t>(file.gcount()));
  }
  return hash.hex();
}

Result<std::vector<TokenId>> segment_tokens(const OracleSegment& segment,
                                            const ChatTemplate& chat_template) {
  IKV_ASSIGN_OR_RETURN(const std::vector<Message> messages, load_messages(segment));
  ChatRenderOptions options;
  options.add_generation_prompt = false;
  IKV_ASSIGN_OR_RETURN(TokenizedChat chat, chat_template.tokenize(messages, options));
  std::vector<TokenId> tokens = std::move(chat.tokens);
  if (tokens.size() > segment.num_tokens) tokens.resize(segment.num_tokens);
  Sha256 hash;
  hash.add(tokens.data(), tokens.size() * sizeof(TokenId));
  if (hash.hex() != segment.ids_sha256) {
    return invalid_argument(segment.file + ", " + segment.id + ": the " +
                            std::to_string(tokens.size()) + " tokens are not the oracle's " +
                            std::to_string(segment.num_tokens));
  }
  return tokens;
}

Result<OracleGolden> load_oracle_golden() {
  std::ifstream text(golden_path("oracle_logits.json"));
  std::ifstream binary(golden_path("oracle_logits.bin"), std::ios::binary);
  if (!text || !binary) return make_error(ErrorCode::kNotFound, "oracle_logits.{json,bin} missing");
  const Json json = Json::parse(text);
  OracleGolden golden;
  golden.model_sha256 = json.at("model_sha256").get<std::string>();
  golden.vocab_size = json.at("vocab_size").get<size_t>();
  size_t num_rows = 0;
  for (const Json& s : json.at("segments")) {
    golden.segments.push_back({s.at("file"), s.at("id"), s.at("first"), s.at("last"),
                               s.at("num_tokens"), s.at("ids_sha256")});
    num_rows += golden.segments.back().num_tokens;
  }
  const auto num_top = json.at("num_top").get<size_t>();
  const auto num_samples = json.at("num_samples").get<size_t>();
  const std::vector<char> bytes(std::istreambuf_iterator<char>(binary), {});
  if (bytes.size() != num_rows * (num_top + num_samples) * (sizeof(float) + sizeof(uint16_t))) {
    return make_error(ErrorCode::kInvalidFile, "oracle_logits.bin does not fit oracle_logits.json");
  }
  const char* at = bytes.data();
  for (size_t i = 0; i < num_rows; ++i) {
    OracleRow row;
    row.top_log_p = take<float, float>(at, num_top);
    row.sample_log_p = take<float, float>(at, num_samples);
    row.top_ids = take<uint16_t, uint32_t>(at, num_top);
    row.sample_ids = take<uint16_t, uint32_t>(at, num_samples);
    golden.rows.push_back(std::move(row));
  }
  return golden;
}

double estimate_kl(const OracleRow& row, const float* logits, size_t vocab_size) {
  const double log_z = log_sum_exp(logits, vocab_size);
  double kl = 0.0, p_top = 0.0, q_top = 0.0;
  for (size_t i = 0; i < row.top_ids.size(); ++i) {
    const double log_q = logits[row.top_ids[i]] - log_z;
    const double p = std::exp(static_cast<double>(row.top_log_p[i]));
    kl += p * (row.top_log_p[i] - log_q);
    p_top += p;
    q_top += std::exp(log_q);
  }
  double tail = 0.0;
  for (size_t i = 0; i < row.sample_ids.size(); ++i) {
    const double log_r = logits[row.sample_ids[i]] - log_z - row.sample_log_p[i];
    tail += std::exp(log_r) - 1.0 - log_r;
  }
  tail *= (1.0 - p_top) / static_cast<double>(row.sample_ids.size());
  return kl + tail - (p_top - q_top);  // the tails' masses are 1 - p_top and 1 - q_top
}

double exact_kl(const float* reference, const float* other, size_t vocab_size) {
  const double log_zp = log_sum_exp(reference, vocab_size);
  const double log_zq = log_sum_exp(other, vocab_size);
  double kl = 0.0;
  for (size_t i = 0; i < vocab_size; ++i) {
    const double log_p = reference[i] - log_zp;
    kl += std::exp(log_p) * (log_p - (other[i] - log_zq));
  }
  return kl;
}

size_t arg_max(const float* values, size_t size) {
  return static_cast<size_t>(std::max_element(values, values + size) - values);
}

}  // namespace ikv::testing
