//! The experiments of the SlimStore paper, rerun.
mod backup;
mod clock;
mod restore;
mod rng;
mod sdb;
use std::io::Write as _;
pub(crate) const SEED: [u8; 32] = *b"larder slimstore bench, not keys";
fn main() -> anyhow::Result<()> {
    let spec = sdb::Spec { files: 8, file_bytes: 8 << 20, duplication: sdb::Duplication::Spread, self_reference: 0.2, seed: 1 };
    let t = std::time::Instant::now();
    let mut sdb = sdb::SDb::new(spec);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:?} {}", t.elapsed(), sdb.bytes())?;
    let mut m: Vec<_> = (0..8).map(|_| sdb::measure::Measurer::new()).collect();
    for v in 0..25 {
        let mut all = sdb::measure::Measured::default();
        let mut line = String::new();
        for (i, f) in sdb.files().enumerate() {
            let x = m[i].version(f);
            all.add(x);
            line += &format!(" {:.3}/{:.3}", x.duplication()-sdb::Duplication::Spread.of(i, 8), x.self_reference());
        }
        writeln!(out, "{v} {:.3} {:.3} u{} {} |{line}", all.duplication(), all.self_reference(), all.unique >> 20, all.bytes >> 20)?;
        let t = std::time::Instant::now();
        sdb.advance();
        if v == 0 { writeln!(out, "{:?}", t.elapsed())?; }
    }
    Ok(())
}
