#include "server/flat_tools.h"

#include <utility>

#include "server/chat_request.h"

namespace ikv {

std::string read_flat_tools(const FieldReader& body, const FlatToolShape& shape) {
  const Json* tools = body.find_array("tools");
  if (tools == nullptr || tools->empty()) return {};
  Json converted = Json::array();
  for (size_t i = 0; i < tools->size() && !body.fault(); ++i) {
    const std::string path = element("tools", i);
    const Json& tool = (*tools)[i];
    if (!tool.is_object()) {
      body.fail_type(path, "an object", tool);
      break;
    }
    const FieldReader fields(tool, path, body.fault());
    std::string type = shape.default_type;
    std::string name;
    std::string description;
    fields.read_string("type", type, kMaxIdBytes);
    if (type != shape.type) {
      fields.fail("type", "unsupported_value",
                  "'" + path + ".type' must be \"" + shape.type +
                      "\": tools that run at the provider do not exist here");
    }
    fields.read_string("name", name, kMaxIdBytes);
    if (name.empty()) fields.fail_missing("name");
    fields.read_string("description", description);
    Json function = {{"name", name}};
    if (!description.empty()) function["description"] = description;
    if (const Json* schema = fields.find_object(shape.schema_field)) {
      function["parameters"] = *schema;
    }
    converted.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return body.fault() ? std::string() : dump_json(converted);
}

}  // namespace ikv
