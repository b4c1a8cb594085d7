#include "server/completion_request.h"

#include <limits>
#include <utility>

namespace ikv {
namespace {

std::string element(size_t index) {
  return "prompt[" + std::to_string(index) + "]";
}

void add_text(std::string text, std::vector<CompletionRequest>& prompts) {
  CompletionRequest request;
  request.prompt = std::move(text);
  prompts.push_back(std::move(request));
}

void add_tokens(const FieldReader& body, std::string_view name, const Json& array,
                std::vector<CompletionRequest>& prompts) {
  CompletionRequest request;
  request.prompt_tokens = read_token_array(body, name, array);
  if (request.prompt_tokens.empty()) {
    body.fail(name, "invalid_value", "'" + std::string(name) + "' must not be empty");
  }
  prompts.push_back(std::move(request));
}

// A text, tokens, texts, or arrays of tokens.
std::vector<CompletionRequest> read_prompts(const FieldReader& body) {
  std::vector<CompletionRequest> prompts;
  const Json* prompt = body.find("prompt");
  if (prompt == nullptr) {
    body.fail_missing("prompt");
  } else if (prompt->is_string()) {
    add_text(prompt->get<std::string>(), prompts);
  } else if (!prompt->is_array()) {
    body.fail_type("prompt", "a string, tokens, or an array of them", *prompt);
  } else if (prompt->empty() || (*prompt)[0].is_number()) {
    add_tokens(body, "prompt", *prompt, prompts);
  } else {
    for (size_t i = 0; i < prompt->size() && i <= kMaxChoices && !body.fault(); ++i) {
      const Json& item = (*prompt)[i];
      if (item.is_string()) {
        add_text(item.get<std::string>(), prompts);
      } else if (item.is_array()) {
        add_tokens(body, element(i), item, prompts);
      } else {
        body.fail_type(element(i), "a string or an array of tokens", item);
      }
    }
  }
  return prompts;
}

void refuse_unsupported(const FieldReader& body, int num_choices) {
  std::string suffix;
  body.read_string("suffix", suffix);
  if (!suffix.empty()) {
    body.fail("suffix", "unsupported_parameter", "'suffix' is not supported");
  }
  int best_of = num_choices;
  body.read_int("best_of", best_of, 1, kMaxChoices);
  if (best_of != num_choices) {
    body.fail("best_of", "unsupported_value", "'best_of' is supported only where it equals 'n'");
  }
}

}  // namespace

std::vector<int32_t> read_token_array(const FieldReader& owner, std::string_view name,
                                      const Json& array) {
  std::vector<int32_t> tokens;
  tokens.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const std::optional<int64_t> token = whole_number(array[i]);
    if (!token || *token < 0 || *token > std::numeric_limits<int32_t>::max()) {
      owner.fail(element(name, i), "invalid_type",
                 "'" + std::string(name) + "' must hold token ids only");
      return {};
    }
    tokens.push_back(static_cast<int32_t>(*token));
  }
  return tokens;
}

ApiResult<CompletionCall> parse_completion_call(const Json& json,
                                                const GenerationConfig& defaults) {
  RequestFault fault;
  const FieldReader body(json, "", fault);
  CompletionCall call;
  GenerationConfig generation = defaults;
  const bool had_limit = generation.max_tokens >= 0;
  read_sampling(body, generation);
  // OpenAI's default; a forgotten limit must not fill the context.
  if (!had_limit && body.find("max_tokens") == nullptr &&
      body.find("max_completion_tokens") == nullptr) {
    generation.max_tokens = 16;
  }
  body.read_int("logprobs", generation.num_logprobs, 0, 20);
  body.read_bool("echo", call.echo);
  read_reply_options(body, call.options);
  refuse_unsupported(body, call.options.num_choices);
  std::string salt;
  body.read_string("cache_salt", salt, kMaxIdBytes);
  std::vector<CompletionRequest> prompts = read_prompts(body);
  if (prompts.size() * static_cast<size_t>(call.options.num_choices) > kMaxChoices) {
    body.fail("prompt", "invalid_value",
              "prompts times 'n' must be at most " + std::to_string(kMaxChoices));
  }
  if (fault) return *std::move(fault.error);
  for (const CompletionRequest& prompt : prompts) {
    for (int i = 0; i < call.options.num_choices; ++i) {
      CompletionRequest request = prompt;
      request.cache_salt = salt;
      request.generation = generation;
      if (generation.seed) request.generation.seed = *generation.seed + static_cast<uint64_t>(i);
      call.requests.push_back(std::move(request));
    }
  }
  return call;
}

}  // namespace ikv
