//! Chat templates: Jinja as the transformers library sets it up (trim_blocks, lstrip_blocks, loop
//! controls, tojson of Python, strftime_now, raise_exception), run by minijinja within bounds.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::{Local, TimeZone};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};

use crate::{pyjson, pymethods};

/// A rendering may execute this many instructions (and make 64 bytes for each), plus more for each
/// message and byte of the conversation: several times what real templates use.
const BASE_FUEL: u64 = 300_000;
const FUEL_PER_MESSAGE: u64 = 3_000;
const BYTES_PER_FUEL: u64 = 8;

/// minijinja compiles and prints by recursion. A chain of operators is as deep as it is long, and a
/// value as deep as there were instructions to nest it, so both run on a stack of their own that is
/// large enough for the deepest that the limits allow; untouched, it costs only address space.
const MAX_SOURCE_BYTES: usize = 128 << 10;
const COMPILE_STACK_BYTES: usize = 256 << 20;
const RENDER_STACK_BYTES_PER_FUEL: u64 = 400;
const MAX_RENDER_STACK_BYTES: u64 = 1 << 30;

/// Prefix that tells our raise_exception's errors from minijinja's own.
const RAISED: &str = "\u{1}raised\u{1}";
const NAME: &str = "chat_template";

pub enum RenderError {
    /// The template called raise_exception().
    Raised(String),
    Failed(String),
}

pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<ChatTemplate, String> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(format!(
                "it has {} bytes; at most {MAX_SOURCE_BYTES} are accepted",
                source.len()
            ));
        }
        stacker::grow(COMPILE_STACK_BYTES, || ChatTemplate::compile(source))
    }

    fn compile(source: &str) -> Result<ChatTemplate, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|e| e.to_string())?;
        environment.set_syntax(syntax);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_debug(false);
        environment.set_unknown_method_callback(pymethods::unknown_method);
        environment.add_filter("tojson", pyjson::tojson);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|e| describe(&e))?;
        Ok(ChatTemplate { environment })
    }

    /// Renders with the variables of a JSON object.
    pub fn render(&self, context_json: &str) -> Result<String, RenderError> {
        let context: serde_json::Value = serde_json::from_str(context_json)
            .map_err(|e| RenderError::Failed(format!("template context: {e}")))?;
        let num_messages = context["messages"].as_array().map_or(0, Vec::len) as u64;
        let fuel = BASE_FUEL
            + FUEL_PER_MESSAGE * num_messages
            + context_json.len() as u64 / BYTES_PER_FUEL;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let stack_bytes = (fuel * RENDER_STACK_BYTES_PER_FUEL).min(MAX_RENDER_STACK_BYTES);
        stacker::grow(stack_bytes as usize, || {
            let template = environment.get_template(NAME).map_err(failure)?;
            template.render(Value::from(Serde(context))).map_err(failure)
        })
    }
}

fn failure(error: Error) -> RenderError {
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    while let Some(current) = source {
        let detail = current.downcast_ref::<Error>().and_then(Error::detail).unwrap_or_default();
        if let Some(message) = detail.strip_prefix(RAISED) {
            return RenderError::Raised(message.to_string());
        }
        source = current.source();
    }
    RenderError::Failed(describe(&error))
}

/// One line: what, where in the template, and what lay behind it.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let _ = write!(text, "; caused by: {cause}");
        source = cause.source();
    }
    text.replace('\n', " ")
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// Local time by C's strftime codes.
fn strftime_now(format: String) -> Result<String, Error> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    let mut text = String::new();
    let written = match Local.timestamp_opt(seconds, 0).single() {
        Some(now) => write!(text, "{}", now.format(&format)),
        None => Err(std::fmt::Error),
    };
    written.map(|()| text).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now: bad format {format:?}"))
    })
}

/// `{% generation %}` only marks training masks; here its body is plain text, so the tags become a
/// condition that always holds, with their whitespace control kept.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let word = tag.trim_matches(|c: char| "{}%-+".contains(c) || c.is_whitespace());
        match word {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::{ChatTemplate, RenderError};

    fn render(source: &str, context: &str) -> String {
        match ChatTemplate::new(source).expect("compiles").render(context) {
            Ok(text) => text,
            Err(RenderError::Raised(m)) => format!("raised: {m}"),
            Err(RenderError::Failed(m)) => format!("failed: {m}"),
        }
    }

    #[test]
    fn tojson_keeps_order_and_does_not_escape_html() {
        assert_eq!(
            render("{{ x|tojson }}", r#"{"x": {"b": "<é'&>", "a": [1, 2.0, null, true]}}"#),
            r#"{"b": "<é'&>", "a": [1, 2.0, null, true]}"#
        );
        assert_eq!(
            render("{{ x|tojson(indent=2) }}", r#"{"x": {"b": [], "a": [1]}}"#),
            "{\n  \"b\": [],\n  \"a\": [\n    1\n  ]\n}"
        );
        assert_eq!(render("{{ 'é'|tojson(ensure_ascii=True) }}", "{}"), r#""\u00e9""#);
    }

    #[test]
    fn missing_python_methods_work() {
        assert_eq!(render("{{ 'abc'.removeprefix('a') }}", "{}"), "bc");
        assert_eq!(render("{{ 'a-b-c'.rpartition('-')|join('|') }}", "{}"), "a-b|-|c");
        assert_eq!(render("{{ ' a b  c '.rsplit(none, 1)|join('|') }}", "{}"), " a b|c");
        assert_eq!(render("{{ 'ab'.rjust(4, '.') }}{{ '-7'.zfill(4) }}", "{}"), "..ab-007");
    }

    #[test]
    fn refusals_are_errors_with_the_name() {
        assert_eq!(render("{{ raise_exception('no system') }}", "{}"), "raised: no system");
        assert!(render("{{ 'a'.swapcase() }}", "{}").contains("string.swapcase()"));
        assert!(render("{{ strftime_now('%Q') }}", "{}").contains("strftime_now"));
        assert!(ChatTemplate::new("{% if %}").is_err());
    }

    #[test]
    fn hostile_templates_end() {
        let source =
            "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}";
        assert!(render(source, "{}").starts_with("failed"));
        assert!(
            render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}").starts_with("failed")
        );
    }

    #[test]
    fn deep_templates_and_values_do_not_exhaust_the_stack() {
        for (prefix, link, suffix) in
            [("1", "+1", ""), ("", "-", "1"), ("", "not ", "1"), ("a", ".b", ""), ("''", "|e", "")]
        {
            let room = super::MAX_SOURCE_BYTES - 16;
            let source = format!("{{{{ {prefix}{}{suffix} }}}}", link.repeat(room / link.len()));
            let _ = ChatTemplate::new(&source).map(|t| t.render("{}").is_ok());
        }
        let nested = format!("{}ns.x{}", "[".repeat(60), "]".repeat(60));
        let source = format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range(1000) %}}{{% set ns.x = {nested} %}}\
             {{% endfor %}}{{{{ ns.x }}}}"
        );
        assert!(render(&source, "{}").starts_with("[[["));
        assert!(ChatTemplate::new(&"x".repeat(super::MAX_SOURCE_BYTES + 1)).is_err());
    }

    #[test]
    fn generation_tags_and_loop_controls_are_understood() {
        let source = "{% for i in [1,2,3] %}{% if i == 2 %}{% break %}{% endif %}\
                      {%- generation %}<{{ i }}>{% endgeneration %}{% endfor %}";
        assert_eq!(render(source, "{}"), "<1>");
    }
}
