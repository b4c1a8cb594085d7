//! Python string methods that chat templates use and minijinja's pycompat lacks. Whatever neither
//! has is refused by name.

use minijinja::value::{from_args, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Longest text a padding method may make: they are the only ones whose result is not bounded by
/// their input.
const MAX_WIDTH: usize = 1 << 20;

pub fn unknown_method(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string_method(value.as_str().unwrap_or_default(), method, args),
        _ => None,
    };
    if let Some(result) = own {
        return result;
    }
    let kind = value.kind();
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args).map_err(|e| {
        if e.kind() == ErrorKind::UnknownMethod {
            Error::new(
                ErrorKind::UnknownMethod,
                format!("the method {kind}.{method}() is not supported"),
            )
        } else {
            e
        }
    })
}

fn string_method(s: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "removeprefix" => from_args(args)
            .map(|(prefix,): (&str,)| Value::from(s.strip_prefix(prefix).unwrap_or(s))),
        "removesuffix" => from_args(args)
            .map(|(suffix,): (&str,)| Value::from(s.strip_suffix(suffix).unwrap_or(s))),
        "partition" => partition(s, args, false),
        "rpartition" => partition(s, args, true),
        "rsplit" => rsplit(s, args),
        "ljust" | "rjust" | "center" => pad(s, method, args),
        "zfill" => zfill(s, args),
        "index" => from_args(args).and_then(|(needle,): (&str,)| {
            s.find(needle).map(|at| Value::from(s[..at].chars().count())).ok_or_else(|| {
                Error::new(ErrorKind::InvalidOperation, "index(): substring not found")
            })
        }),
        "casefold" => from_args(args).map(|(): ()| Value::from(s.to_lowercase())),
        "isdecimal" => from_args(args)
            .map(|(): ()| Value::from(!s.is_empty() && s.chars().all(|c| c.is_ascii_digit()))),
        _ => return None,
    })
}

fn partition(s: &str, args: &[Value], last: bool) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "partition(): empty separator"));
    }
    let found = if last { s.rsplit_once(separator) } else { s.split_once(separator) };
    let parts = match found {
        Some((left, right)) => [left, separator, right],
        None if last => ["", "", s],
        None => [s, "", ""],
    };
    Ok(Value::from(parts.map(Value::from).to_vec()))
}

fn rsplit(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, max): (Option<&str>, Option<i64>) = from_args(args)?;
    let max = usize::try_from(max.unwrap_or(-1)).ok();
    let mut parts: Vec<&str> = match (separator, max) {
        (Some(""), _) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "rsplit(): empty separator"))
        }
        (Some(separator), Some(max)) => s.rsplitn(max + 1, separator).collect(),
        (Some(separator), None) => s.rsplit(separator).collect(),
        (None, None) => s.split_whitespace().rev().collect(),
        (None, Some(max)) => rsplit_whitespace(s, max),
    };
    parts.reverse();
    Ok(Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>()))
}

fn rsplit_whitespace(s: &str, max: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = s.trim_end();
    while !rest.is_empty() {
        if parts.len() == max {
            parts.push(rest);
            break;
        }
        match rest.rfind(char::is_whitespace) {
            Some(at) => {
                let start = at + rest[at..].chars().next().map_or(1, char::len_utf8);
                parts.push(&rest[start..]);
                rest = rest[..at].trim_end();
            }
            None => {
                parts.push(rest);
                break;
            }
        }
    }
    parts
}

fn checked_width(width: i64) -> Result<usize, Error> {
    let width = usize::try_from(width).unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "padding width is too large"));
    }
    Ok(width)
}

fn pad(s: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = fill.unwrap_or(" ");
    let missing = checked_width(width)?.saturating_sub(s.chars().count());
    let left = match method {
        "rjust" => missing,
        // Python puts the odd character left when the width is odd.
        "center" => missing / 2 + (missing & checked_width(width)? & 1),
        _ => 0,
    };
    Ok(Value::from(format!("{}{s}{}", fill.repeat(left), fill.repeat(missing - left))))
}

fn zfill(s: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,): (i64,) = from_args(args)?;
    let missing = checked_width(width)?.saturating_sub(s.chars().count());
    let (sign, digits) = match s.chars().next() {
        Some('+' | '-') => s.split_at(1),
        _ => ("", s),
    };
    Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(missing))))
}
