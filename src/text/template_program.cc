#include "text/template_program.h"

#include "text/native.h"

namespace ikv {

void TemplateProgram::Deleter::operator()(IkvTemplate* native) const {
  ikv_template_free(native);
}

Result<TemplateProgram> TemplateProgram::compile(std::string_view source) {
  IkvTemplate* compiled = nullptr;
  IkvText error{};
  const int32_t status = ikv_template_new(native::slice(source), &compiled, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidFile,
                           "the chat template does not compile: ");
  }
  return TemplateProgram(compiled);
}

Result<std::string> TemplateProgram::render(std::string_view context_json) const {
  IkvText out{};
  IkvText error{};
  const int32_t status =
      ikv_template_render(native_.get(), native::slice(context_json), &out, &error);
  if (status == IKV_TEXT_OK) return native::take(out);
  return native::failure(status, error, ErrorCode::kInvalidArgument,
                         status == IKV_TEXT_RAISED ? "the chat template refuses these messages: "
                                                   : "the chat template failed: ");
}

}  // namespace ikv
