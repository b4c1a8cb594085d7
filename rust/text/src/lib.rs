//! Tokenizers and chat templates of IntentKV behind the C interface of `include/ikv_text.h`.

mod ffi;
mod pyjson;
mod pymethods;
mod template;
mod tokenizer;

pub use template::ChatTemplate;
pub use tokenizer::{ModelKind, Tokenizer, TokenizerSpec};
