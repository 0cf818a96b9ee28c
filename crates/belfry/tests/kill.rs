//! SIGKILL at random moments: real processes, real HTTP/2, counted at the provider. `make kill-test` runs many
//! rounds, here are a few.

use std::path::Path;

#[test]
fn kill_minus_nine_at_a_random_moment_keeps_every_promise() {
    for seed in 1..=3 {
        let directory = tempfile::tempdir().unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_belfry"));
        let survived = bench::kill::round(binary, directory.path(), seed).unwrap();
        assert!(survived.kills >= 1, "seed {seed}: {survived:?}");
    }
}
