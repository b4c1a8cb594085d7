#include "audit_json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "file_io.h"

namespace ikv {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;
// A character takes at most four bytes, each of which may be a token of its own.
constexpr size_t kMostTokensOfCharacter = 4;

constexpr std::pair<const char*, int32_t AuditReasons::*> kReasons[] = {
    {"pin", &AuditReasons::pin},         {"recent", &AuditReasons::recent},
    {"score", &AuditReasons::score},     {"room", &AuditReasons::room},
    {"demoted", &AuditReasons::demoted}, {"earlier", &AuditReasons::earlier}};

double rounded(double value) {
  return std::round(value * 1e6) / 1e6;
}

OrderedJson usage_to_json(const Usage& usage) {
  OrderedJson json = {{"prompt_tokens", usage.prompt_tokens},
                      {"cached_tokens", usage.cached_tokens},
                      {"evaluated_tokens", usage.evaluated_tokens},
                      {"completion_tokens", usage.completion_tokens},
                      {"prefill_us", usage.prefill_us},
                      {"decode_us", usage.decode_us}};
  const KvUsage& kv = usage.kv;
  json["kv"] = {{"attended_share", rounded(kv.attended_share)},
                {"kept_tokens", kv.kept_tokens},
                {"pruned_tokens", kv.pruned_tokens},
                {"demoted_pages", kv.demoted_pages},
                {"missed_mass", rounded(kv.missed_mass)},
                {"num_probes", kv.num_probes},
                {"resident_bytes", kv.resident_bytes}};
  return json;
}

Usage usage_from_json(const Json& json) {
  Usage usage;
  usage.prompt_tokens = json.at("prompt_tokens");
  usage.cached_tokens = json.at("cached_tokens");
  usage.evaluated_tokens = json.at("evaluated_tokens");
  usage.completion_tokens = json.at("completion_tokens");
  usage.prefill_us = json.at("prefill_us");
  usage.decode_us = json.at("decode_us");
  const Json& kv = json.at("kv");
  usage.kv.attended_share = kv.at("attended_share");
  usage.kv.kept_tokens = kv.at("kept_tokens");
  usage.kv.pruned_tokens = kv.at("pruned_tokens");
  usage.kv.demoted_pages = kv.at("demoted_pages");
  usage.kv.missed_mass = kv.at("missed_mass");
  usage.kv.num_probes = kv.at("num_probes");
  usage.kv.resident_bytes = kv.at("resident_bytes");
  return usage;
}

OrderedJson block_to_json(const AuditBlock& block) {
  OrderedJson json = {{"begin", block.begin},
                      {"end", block.end},
                      {"hot", block.hot_pages},
                      {"cold", block.cold_pages},
                      {"mass", rounded(block.mass)},
                      {"attended_share", rounded(block.attended_share)},
                      {"reasons", OrderedJson::object()}};
  for (const auto& [name, member] : kReasons) {
    if (block.reasons.*member != 0) json["reasons"][name] = block.reasons.*member;
  }
  return json;
}

AuditBlock block_from_json(const Json& json) {
  AuditBlock block;
  block.begin = json.at("begin");
  block.end = json.at("end");
  block.hot_pages = json.at("hot");
  block.cold_pages = json.at("cold");
  block.mass = json.at("mass");
  block.attended_share = json.at("attended_share");
  for (const auto& [name, member] : kReasons) {
    block.reasons.*member = json.at("reasons").value(name, 0);
  }
  return block;
}

OrderedJson span_to_json(const AuditSpan& span) {
  return {{"message", span.message}, {"role", role_name(span.role)},
          {"part", span.part},       {"begin", span.begin},
          {"end", span.end},         {"attended_share", rounded(span.attended_share)}};
}

std::optional<Role> role_from(const std::string& name) {
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
    if (name == role_name(role)) return role;
  }
  return std::nullopt;
}

Result<AuditSpan> span_from_json(const Json& json) {
  AuditSpan span;
  const auto role = role_from(json.at("role").get<std::string>());
  if (!role) return invalid_file("a span's role must be system, user, assistant or tool");
  span.role = *role;
  span.message = json.at("message");
  span.part = json.at("part");
  span.begin = json.at("begin");
  span.end = json.at("end");
  span.attended_share = json.at("attended_share");
  return span;
}

// Places come from a file: nobody may be led outside the transcript by them.
template <typename Range>
Status check_places(const std::vector<Range>& ranges, size_t num_tokens, const char* what) {
  int32_t last = 0;
  for (const Range& range : ranges) {
    if (range.begin < last || range.end < range.begin ||
        static_cast<size_t>(range.end) > num_tokens) {
      return invalid_file(std::string(what) + ": tokens " + std::to_string(range.begin) + " to " +
                          std::to_string(range.end) + " are out of order or outside the " +
                          std::to_string(num_tokens) + " of the transcript");
    }
    last = range.end;
  }
  return {};
}

Status read_texts(const Json& json, AuditRecord& record) {
  size_t covered = 0;
  for (const Json& entry : json) {
    TokenText text;
    text.num_tokens = entry.at(0);
    text.text = entry.at(1);
    if (text.num_tokens < 1) return invalid_file("texts: each needs at least one token");
    covered += static_cast<size_t>(text.num_tokens);
    record.texts.push_back(std::move(text));
  }
  if (covered == record.audit.tokens.size()) return {};
  return invalid_file("texts: " + std::to_string(covered) + " tokens of " +
                      std::to_string(record.audit.tokens.size()));
}

Result<AuditRecord> parse_record(const Json& json) {
  const int version = json.at("version");
  if (version != kVersion) {
    return invalid_file("version " + std::to_string(version) + "; this program reads version " +
                        std::to_string(kVersion));
  }
  AuditRecord record;
  TurnAudit& audit = record.audit;
  audit.session_id = json.at("session_id");
  audit.turn = json.at("turn");
  audit.attend_budget = json.at("attend_budget");
  audit.resident_budget = json.at("resident_budget");
  audit.usage = usage_from_json(json.at("usage"));
  audit.num_steps = json.at("steps");
  audit.hot_pages = json.at("hot_pages");
  audit.cold_pages = json.at("cold_pages");
  for (const Json& permille : json.at("attended_permille")) {
    audit.attended_shares.push_back(permille.get<float>() / 1000.0f);
  }
  audit.tokens.resize(audit.attended_shares.size());
  for (const Json& span : json.at("spans")) {
    IKV_ASSIGN_OR_RETURN(AuditSpan parsed, span_from_json(span));
    audit.spans.push_back(std::move(parsed));
  }
  for (const Json& block : json.at("blocks")) audit.blocks.push_back(block_from_json(block));
  IKV_RETURN_IF_ERROR(check_places(audit.spans, audit.tokens.size(), "spans"));
  // The cache may hold a token that the reply gave back.
  IKV_RETURN_IF_ERROR(check_places(audit.blocks, audit.tokens.size() + 1, "blocks"));
  if (json.contains("texts")) IKV_RETURN_IF_ERROR(read_texts(json.at("texts"), record));
  return record;
}

}  // namespace

std::vector<TokenText> token_texts(const DecodeTokens& decode, const std::vector<int32_t>& tokens) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::vector<TokenText> texts;
  for (size_t i = 0; i < tokens.size();) {
    TokenText text;
    for (size_t count = 1; count <= std::min(kMostTokensOfCharacter, tokens.size() - i); ++count) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i);
      auto decoded = decode({begin, begin + static_cast<std::ptrdiff_t>(count)});
      if (!decoded.ok()) break;
      const bool whole = decoded->find(kReplacement) == std::string::npos;
      if (count > 1 && !whole) continue;
      text = {static_cast<int32_t>(count), std::move(decoded).value()};
      if (whole) break;
    }
    i += static_cast<size_t>(text.num_tokens);
    texts.push_back(std::move(text));
  }
  return texts;
}

OrderedJson audit_to_json(const TurnAudit& audit, const std::vector<TokenText>& texts) {
  OrderedJson json = {{"version", kVersion},
                      {"session_id", audit.session_id},
                      {"turn", audit.turn},
                      {"attend_budget", audit.attend_budget},
                      {"resident_budget", audit.resident_budget},
                      {"usage", usage_to_json(audit.usage)},
                      {"steps", audit.num_steps},
                      {"hot_pages", audit.hot_pages},
                      {"cold_pages", audit.cold_pages}};
  OrderedJson& shares = json["attended_permille"] = OrderedJson::array();
  for (const float share : audit.attended_shares) {
    shares.push_back(static_cast<int>(std::lround(share * 1000.0f)));
  }
  OrderedJson& spans = json["spans"] = OrderedJson::array();
  for (const AuditSpan& span : audit.spans) spans.push_back(span_to_json(span));
  OrderedJson& blocks = json["blocks"] = OrderedJson::array();
  for (const AuditBlock& block : audit.blocks) blocks.push_back(block_to_json(block));
  if (texts.empty()) return json;
  OrderedJson& pieces = json["texts"] = OrderedJson::array();
  for (const TokenText& text : texts) {
    pieces.push_back(OrderedJson::array({text.num_tokens, text.text}));
  }
  return json;
}

Result<AuditRecord> audit_from_json(const Json& json) {
  try {
    return parse_record(json);
  } catch (const Json::exception& e) {
    return invalid_file(std::string("not an audit record: ") + e.what());
  }
}

Result<std::vector<AuditRecord>> read_audit_file(const std::string& path) {
  IKV_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<AuditRecord> records;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    ++number;
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    Result<AuditRecord> record = json.is_object()
                                     ? audit_from_json(json)
                                     : Result<AuditRecord>(invalid_file("not a JSON object"));
    if (!record.ok()) {
      return make_error(record.error().code, "'" + path + "', line " + std::to_string(number) +
                                                 ": " + record.error().message);
    }
    records.push_back(std::move(record).value());
  }
  if (records.empty()) {
    return invalid_file("'" + path + "' holds no audit; `--audit FILE` writes one");
  }
  return records;
}

Result<AuditFile> AuditFile::open(std::string path, bool with_text) {
  AuditFile file;
  if (path.empty()) {
    if (with_text) return invalid_argument("--audit-text says what --audit FILE holds; give both");
    return file;
  }
  IKV_RETURN_IF_ERROR(write_file(path, ""));
  file.path_ = std::move(path);
  file.with_text_ = with_text;
  return file;
}

Status AuditFile::write(const Engine& engine, const GenerationResult& result) const {
  if (!wanted() || result.audit == nullptr) return {};
  const TurnAudit& audit = *result.audit;
  std::vector<TokenText> texts;
  if (with_text_) {
    texts =
        token_texts([&](const auto& tokens) { return engine.detokenize(tokens); }, audit.tokens);
  }
  const OrderedJson json = audit_to_json(audit, texts);
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::FILE* file = std::fopen(path_.c_str(), "ab");
  bool written = file != nullptr;
  if (file != nullptr) {
    written = std::fwrite(line.data(), 1, line.size(), file) == line.size();
    written = std::fclose(file) == 0 && written;
  }
  if (written) return {};
  return make_error(ErrorCode::kIo, "cannot write '" + path_ + "': " + std::strerror(errno));
}

}  // namespace ikv
