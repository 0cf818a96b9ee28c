//! The seeds of the fuzzer's corpus, and the corpus played without the fuzzer.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::http2::hostile_bytes_tests::{by_hand, recorded};
use crate::http2::hpack::tests::{STANDARD_ANSWERS, STANDARD_REQUESTS, bytes};

/// Files of a corpus at most: it is minimised.
const FILES_MAX: usize = 50;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// Inputs of [`reader`]: what servers have written, with the seeds of several courses.
async fn reader_seeds() -> Vec<Vec<u8>> {
    let recordings = [recorded().await.concat(), by_hand().concat()];
    let with =
        |seed: u16| recordings.iter().map(move |bytes| [&seed.to_be_bytes()[..], bytes].concat());
    (0..20).flat_map(with).collect()
}

/// Inputs of [`header_blocks`]: the examples of RFC 7541.
fn header_seeds() -> Vec<Vec<u8>> {
    let input = |table: u8, blocks: &[&str]| {
        let block = |hex: &&str| {
            let block = bytes(hex);
            [&[table, u8::try_from(block.len()).unwrap()], block.as_slice()].concat()
        };
        blocks.iter().flat_map(block).collect::<Vec<u8>>()
    };
    let small = |blocks: &[&'static str; 3]| [&["3fe101"][..], blocks].concat();
    let requests = STANDARD_REQUESTS.iter().map(|blocks| input(128, blocks));
    requests.chain(STANDARD_ANSWERS.iter().map(|blocks| input(8, &small(blocks)))).collect()
}

/// Writes `seeds` into a folder of `BELFRY_FUZZ_SEEDS`, if that is set: `scripts/fuzz.sh --corpus` makes the corpus of them.
fn offer(target: &str, seeds: &[Vec<u8>]) {
    #[expect(
        clippy::disallowed_methods,
        reason = "where a script wants them is no setting of the engine"
    )]
    let Ok(folder) = std::env::var("BELFRY_FUZZ_SEEDS") else { return };
    let folder = Path::new(&folder).join(target);
    fs::create_dir_all(&folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
    }
}

#[tokio::test]
async fn the_readers_seeds_reach_every_verdict() {
    let seeds = reader_seeds().await;
    let mut verdicts = HashSet::new();
    for input in &seeds {
        let (seed, bytes) = input.split_first_chunk().unwrap();
        let outcomes = playing::play(bytes, &mut course(*seed));
        verdicts.extend(outcomes.iter().flatten().map(std::mem::discriminant));
    }
    assert_eq!(verdicts.len(), 4, "answered, refused, for HTTP/1.1, and lost");
    offer("reader", &seeds);
}

#[test]
fn the_seeds_of_header_blocks_are_read_to_their_end() {
    let seeds = header_seeds();
    for input in &seeds {
        let mut blocks = input.as_slice();
        let mut decoder = HpackDecoder::default();
        while let Some(([_, length], rest)) = blocks.split_first_chunk() {
            let (block, behind) = rest.split_at(usize::from(*length));
            decoder.decode(block, |_, _, _| false).unwrap();
            blocks = behind;
        }
        header_blocks(input);
    }
    offer("hpack", &seeds);
}

#[test]
fn the_corpus_is_played_to_its_end() {
    for (target, play) in [("reader", reader as fn(&[u8])), ("hpack", header_blocks)] {
        let files = fs::read_dir(corpus(target)).unwrap().map(|file| file.unwrap().path());
        let files: Vec<_> = files.collect();
        assert!((1..=FILES_MAX).contains(&files.len()), "{target}: {}", files.len());
        for file in files {
            let input = fs::read(&file).unwrap();
            let played = std::panic::catch_unwind(|| play(&input));
            assert!(played.is_ok(), "{}", file.display());
        }
    }
}
