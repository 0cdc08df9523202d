//! Any bytes, for the decoders.

#![no_main]

// What the other target needs of it is not used here.
#[allow(dead_code)]
#[path = "../../support/bytes.rs"]
mod bytes;

libfuzzer_sys::fuzz_target!(|input: &[u8]| bytes::check_codec(input));
