//! The C border of grammars; see ffi.rs.

use crate::ffi::{array, guard, invalid, IkvSlice, IkvText};
use crate::grammar::{GrammarKind, GrammarState, GrammarVocabulary};

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_vocabulary_new(
    tokens: *const IkvSlice,
    control: *const u8,
    num_tokens: usize,
    ends: *const i32,
    num_ends: usize,
    out: *mut *mut GrammarVocabulary,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let tokens: Vec<&[u8]> = array(tokens, num_tokens).iter().map(|t| t.bytes()).collect();
        let ends: Vec<u32> = array(ends, num_ends).iter().map(|e| *e as u32).collect();
        let vocabulary =
            GrammarVocabulary::new(&tokens, array(control, num_tokens), &ends).map_err(invalid)?;
        out.write(Box::into_raw(Box::new(vocabulary)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_vocabulary_free(vocabulary: *mut GrammarVocabulary) {
    if !vocabulary.is_null() {
        drop(Box::from_raw(vocabulary));
    }
}

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_new(
    vocabulary: *const GrammarVocabulary,
    kind: i32,
    source: IkvSlice,
    out: *mut *mut GrammarState,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let kind = match kind {
            0 => GrammarKind::JsonSchema,
            1 => GrammarKind::Regex,
            2 => GrammarKind::Lark,
            other => return Err(invalid(format!("grammar kind {other} is unknown"))),
        };
        let source = source.text("the grammar").map_err(invalid)?;
        let state = (*vocabulary).compile(kind, source).map_err(invalid)?;
        out.write(Box::into_raw(Box::new(state)));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_copy(
    grammar: *const GrammarState,
    out: *mut *mut GrammarState,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        out.write(Box::into_raw(Box::new((*grammar).copy())));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_free(grammar: *mut GrammarState) {
    if !grammar.is_null() {
        drop(Box::from_raw(grammar));
    }
}

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_mask(
    grammar: *mut GrammarState,
    words: *mut u32,
    num_words: usize,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        let words = std::slice::from_raw_parts_mut(words, num_words);
        (*grammar).mask(words).map_err(invalid)
    })
}

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_accept(
    grammar: *mut GrammarState,
    token: i32,
    error: *mut IkvText,
) -> i32 {
    guard(error, || (*grammar).accept(token as u32).map_err(invalid))
}

#[no_mangle]
pub unsafe extern "C" fn ikv_grammar_may_end(
    grammar: *mut GrammarState,
    out: *mut i32,
    error: *mut IkvText,
) -> i32 {
    guard(error, || {
        out.write(i32::from((*grammar).may_end()));
        Ok(())
    })
}
