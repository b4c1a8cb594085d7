// TemplateProgram: a compiled Jinja chat template.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct IkvTemplate;

namespace ikv {

/// Rendering is thread-safe and bounded in time; set up as the transformers library does
/// (trim_blocks, lstrip_blocks, loop controls, tojson, strftime_now, raise_exception).
class TemplateProgram {
 public:
  /// kInvalidFile with the line for a template that does not compile.
  static Result<TemplateProgram> compile(std::string_view source);

  /// `context_json`: an object with the template's variables. kInvalidArgument: the template
  /// refused the conversation (its own words are in the message) or failed.
  Result<std::string> render(std::string_view context_json) const;

 private:
  struct Deleter {
    void operator()(IkvTemplate* native) const;
  };
  explicit TemplateProgram(IkvTemplate* native) : native_(native) {}
  std::unique_ptr<IkvTemplate, Deleter> native_;
};

}  // namespace ikv
