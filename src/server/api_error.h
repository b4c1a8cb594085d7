// Errors as OpenAI's and Anthropic's clients expect them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace ikv {

/// Member order is kept: templates render tools in the order in which the client wrote them.
using Json = nlohmann::ordered_json;

/// A refusal with its HTTP status.
struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;      ///< path of the field, "messages[2].role"; empty: none
  std::string code;       ///< stable, for programs; empty: none
  int retry_after_s = 0;  ///< sent as Retry-After when positive
};

/// A client's mistake in field `param`.
ApiError bad_field(std::string param, std::string code, std::string message);

/// What an engine's error means for a client. `param` names the field that most likely caused it.
ApiError from_engine_error(const Error& error, const std::string& param = {});

/// {"error": {message, type, param, code}}: OpenAI's shape.
Json openai_error_json(const ApiError& error);

/// {"type": "error", "error": {type, message}}: Anthropic's shape, with our `param` and `code`.
Json anthropic_error_json(const ApiError& error);

/// One line of JSON; broken UTF-8 becomes U+FFFD instead of failing.
std::string dump_json(const Json& json);

}  // namespace ikv
