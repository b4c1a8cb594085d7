// Tools as the Messages and Responses APIs write them.
#pragma once

#include <string>

#include "server/json_input.h"

namespace ikv {

/// How one API names the parts of a tool that is a flat object {type, name, description, schema}.
struct FlatToolShape {
  const char* default_type;  ///< stands in for an absent type
  const char* type;          ///< the only type that is supported
  const char* schema_field;  ///< holds the arguments' JSON schema
};

/// The field `tools` of `body` as a JSON array of the chat API's tool objects; empty when there are
/// none or one is at fault, which is noted in the body's fault.
std::string read_flat_tools(const FieldReader& body, const FlatToolShape& shape);

}  // namespace ikv
