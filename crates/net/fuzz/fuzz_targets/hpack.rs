//! [`net::http2::fuzzing::header_blocks`] before libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| net::http2::fuzzing::header_blocks(input));
