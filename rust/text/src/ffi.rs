//! The C border. Every entry point catches panics and turns errors into a status and a message.

use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::template::{ChatTemplate, RenderError};
use crate::tokenizer::{Encoded, Tokenizer};
use crate::vocabulary::{ModelKind, TokenizerSpec};

const OK: i32 = 0;
const INVALID: i32 = 1;
const RAISED: i32 = 2;
const PANIC: i32 = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IkvSlice {
    data: *const u8,
    len: usize,
}

impl IkvSlice {
    /// # Safety
    /// `data` must be readable for `len` bytes while the result is used.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        array(self.data, self.len)
    }

    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()).map_err(|e| format!("{what} is not valid UTF-8: {e}"))
    }
}

/// A C array that may be null when empty.
pub unsafe fn array<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() || len == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, len)
    }
}

#[repr(C)]
pub struct IkvText {
    data: *mut u8,
    len: usize,
}

impl IkvText {
    fn new(text: String) -> IkvText {
        let bytes = text.into_bytes().into_boxed_slice();
        let len = bytes.len();
        IkvText { data: Box::into_raw(bytes) as *mut u8, len }
    }
}

#[no_mangle]
pub unsafe extern "C" fn ikv_text_free(text: IkvText) {
    if !text.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.data, text.len)));
    }
}

/// Runs `body`; on failure stores the message in `error` (when not null) and returns the status.
pub unsafe fn guard(error: *mut IkvText, body: impl FnOnce() -> Result<(), (i32, String)>) -> i32 {
    let (status, message) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let what = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("unknown panic");
            (PANIC, format!("internal error in the text library: {what}"))
        }
    };
    if !error.is_null() {
        error.write(IkvText::new(message));
    }
    status
}

pub fn invalid(message: String) -> (i32, String) {
    (INVALID, message)
}

#[repr(C)]
pub struct IkvTokenizerSpec {
    kind: i32,
    tokens: *const IkvSlice,
    types: *const i32,
    scores: *const f32,
    num_tokens: usize,
    merges: *const IkvSlice,
    num_merges: usize,
    split_patterns: *const IkvSlice,
    num_split_patterns: usize,
    ignore_merges: i32,
    add_space_prefix: i32,
    unknown_id: i32,
}

unsafe fn read_spec<'a>(spec: &IkvTokenizerSpec) -> Result<TokenizerSpec<'a>, String> {
    let kind = match spec.kind {
        0 => ModelKind::ByteBpe,
        1 => ModelKind::Spm,
        other => return Err(format!("tokenizer kind {other} is unknown")),
    };
    let mut split_patterns = Vec::new();
    for pattern in array(spec.split_patterns, spec.num_split_patterns) {
        split_patterns.push(pattern.text("a split pattern")?);
    }
    let num_scores = if spec.scores.is_null() { 0 } else { spec.num_tokens };
    let num_merges = if spec.merges.is_null() { 0 } else { spec.num_merges };
    Ok(TokenizerSpec {
        kind,
        tokens: array(spec.tokens, spec.num_tokens).iter().map(|t| t.bytes()).collect(),
        types: array(spec.types, spec.num_tokens),
        scores: array(spec.scores, num_scores),
        merges: array(spec.merges, num_merges).iter().map(|m| m.bytes()).collect(),
        split_patterns,
        ignore_merges: spec.ignore_merges != 0,
        add_space_prefix: spec.add_space_prefix != 0,
        unknown_id: u32::try_from(spec.unknown_id).ok(),
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_tokenizer_new(
    spec: *const IkvTokenizerSpec,
    out: *mut *mut Tokenizer,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let tokenizer =
            read_spec(&*spec).and_then(|spec| Tokenizer::new(&spec)).map_err(invalid)?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IkvRange {
    begin: usize,
    end: usize,
}

#[repr(C)]
pub struct IkvTokens {
    ids: *mut i32,
    ends: *mut u64,
    len: usize,
    owner: *mut Encoded,
}

#[no_mangle]
pub unsafe extern "C" fn ikv_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: IkvSlice,
    parse_special: i32,
    literal: *const IkvRange,
    num_literal: usize,
    out: *mut IkvTokens,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let literal: Vec<Range<usize>> =
            array(literal, num_literal).iter().map(|r| r.begin..r.end).collect();
        let encoded =
            (*tokenizer).encode(text.bytes(), parse_special != 0, &literal).map_err(invalid)?;
        let mut owner = Box::new(encoded);
        out.write(IkvTokens {
            ids: owner.ids.as_mut_ptr(),
            ends: owner.ends.as_mut_ptr(),
            len: owner.ids.len(),
            owner: Box::into_raw(owner),
        });
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_tokens_free(tokens: IkvTokens) {
    if !tokens.owner.is_null() {
        drop(Box::from_raw(tokens.owner));
    }
}

#[no_mangle]
pub unsafe extern "C" fn ikv_tokenizer_mark_control(
    tokenizer: *const Tokenizer,
    text: IkvSlice,
    mark: IkvSlice,
    out: *mut IkvText,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let text = text.text("the text").map_err(invalid)?;
        let mark = mark.text("the mark").map_err(invalid)?;
        out.write(IkvText::new((*tokenizer).mark_control(text, mark)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_template_new(
    source: IkvSlice,
    out: *mut *mut ChatTemplate,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let source = source.text("the chat template").map_err(invalid)?;
        let template = ChatTemplate::new(source).map_err(invalid)?;
        out.write(Box::into_raw(Box::new(template)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_template_free(chat_template: *mut ChatTemplate) {
    if !chat_template.is_null() {
        drop(Box::from_raw(chat_template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn ikv_template_render(
    chat_template: *const ChatTemplate,
    context_json: IkvSlice,
    out: *mut IkvText,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let context = context_json.text("the template's context").map_err(invalid)?;
        match (*chat_template).render(context) {
            Ok(text) => {
                out.write(IkvText::new(text));
                Ok(())
            }
            Err(RenderError::Raised(message)) => Err((RAISED, message)),
            Err(RenderError::Failed(message)) => Err((INVALID, message)),
        }
    })
}
