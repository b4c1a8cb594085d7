//! `tojson` as Python's json.dumps(ensure_ascii=False) writes it, which is what chat templates were
//! written against. The built-in filter escapes HTML and would change prompts.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

const MAX_DEPTH: usize = 128;

/// The filter: `tojson(indent=…, separators=…, sort_keys=…, ensure_ascii=…)`.
pub fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<Value>>("indent")?,
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let indent = match indent {
        None => None,
        Some(indent) if indent.is_none() || indent.is_undefined() => None,
        Some(indent) => Some(indent.as_usize().filter(|n| *n <= 16).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, "tojson: indent must be a number from 0 to 16")
        })?),
    };
    let (item, key) = match separators.as_deref() {
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson: separators must be two strings",
            ))
        }
    };
    let writer = Writer {
        indent,
        item,
        key,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    writer.value(value, 0, &mut out)?;
    Ok(Value::from(out))
}

struct Writer {
    indent: Option<usize>,
    item: String,
    key: String,
    sort_keys: bool,
    ensure_ascii: bool,
}

impl Writer {
    fn value(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => {
                let number = f64::try_from(value.clone())?;
                out.push_str(&python_float(number));
            }
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.sequence(&items, depth, out)?;
            }
            ValueKind::Map => self.map(value, depth, out)?,
            kind => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("tojson: a value of type {kind} has no JSON form"),
                ))
            }
        }
        Ok(())
    }

    fn sequence(&self, items: &[Value], depth: usize, out: &mut String) -> Result<(), Error> {
        out.push('[');
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item);
            }
            self.line(depth + 1, out);
            self.value(item, depth + 1, out)?;
        }
        if !items.is_empty() {
            self.line(depth, out);
        }
        out.push(']');
        Ok(())
    }

    fn map(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        out.push('{');
        for (i, key) in keys.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item);
            }
            self.line(depth + 1, out);
            match key.as_str() {
                Some(text) => self.string(text, out),
                None => {
                    let mut text = String::new();
                    self.value(key, depth + 1, &mut text)?;
                    self.string(&text, out);
                }
            }
            out.push_str(&self.key);
            self.value(&value.get_item(key)?, depth + 1, out)?;
        }
        if !keys.is_empty() {
            self.line(depth, out);
        }
        out.push('}');
        Ok(())
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ensure_ascii {
            out.push_str(&quoted);
            return;
        }
        for c in quoted.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}

/// repr() of a float: the shortest digits that read back the same, exponents below -4 and from 16.
fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        format!("{number:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_written_as_python_does() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (-2.5, "-2.5"),
        ] {
            assert_eq!(python_float(number), text);
        }
    }
}
