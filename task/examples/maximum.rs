/*!
Monte Carlo with a shared maximum: calls search the highest point of a landscape.

Each call climbs from random points, and skips those that lie far below the best height that any
call has found. The variable `best` has the height, and the point as its witness.

```sh
cargo run -p starling-task --example maximum -- 16
```
*/

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use starling_task::{Cluster, ClusterOptions, Cx, Result, task};

/// The points that each call tries.
const TRIES: u64 = 2000;
/// A point that lies so far below the best height is not worth a climb.
const FAR: f64 = 6.0;

/// The height of a point; its maximum is 8.106.
fn height(x: f64, y: f64) -> f64 {
    let first = 3.0 * (1.0 - x).powi(2) * (-x * x - (y + 1.0).powi(2)).exp();
    let second = 10.0 * (x / 5.0 - x.powi(3) - y.powi(5)) * (-x * x - y * y).exp();
    first - second - (-(x + 1.0).powi(2) - y * y).exp() / 3.0
}

/// Climbs as long as a step leads up, with shorter and shorter steps.
fn climb(mut x: f64, mut y: f64) -> (f64, f64, f64) {
    let (mut best, mut step) = (height(x, y), 0.1);
    while step > 1e-6 {
        let around = [(step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step)];
        match around.iter().find(|(dx, dy)| height(x + dx, y + dy) > best) {
            Some((dx, dy)) => {
                (x, y) = (x + dx, y + dy);
                best = height(x, y);
            }
            None => step /= 2.0,
        }
    }
    (best, x, y)
}

/// The next random number, from 0 to 1 (SplitMix64).
fn random(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Tries points of this seed; returns the number of climbs.
#[task]
fn search(cx: &mut Cx, seed: u64) -> Result<u64> {
    let best = cx.var("best")?;
    let (mut state, mut climbs) = (seed, 0);
    for _ in 0..TRIES {
        // The search ends early if it is cancelled.
        cx.check()?;
        let (x, y) = (6.0 * random(&mut state) - 3.0, 6.0 * random(&mut state) - 3.0);
        let known = best.get::<f64>()?.unwrap_or(f64::MIN);
        if height(x, y) < known - FAR {
            continue;
        }
        let (top, x, y) = climb(x, y);
        climbs += 1;
        if top > known {
            best.set_with(top, format!("{x:.3} {y:.3}").as_bytes())?;
        }
    }
    Ok(climbs)
}

/// The variables that the calls share.
pub(crate) fn options() -> ClusterOptions {
    let variables = vec!["best=max,real".to_owned()];
    ClusterOptions { variables, ..ClusterOptions::default() }
}

fn main() -> ExitCode {
    starling_task::main_with(options(), |cluster| {
        let calls = std::env::args().nth(1).map_or(Ok(16), |text| text.parse());
        run(cluster, calls?, &mut std::io::stdout())
    })
}

/// Searches with this number of calls, and writes what they have found to `out`.
pub(crate) fn run(
    cluster: &Cluster,
    calls: u64,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let searches = (0..calls).map(|seed| cluster.submit(search(seed)));
    let searches = searches.collect::<Result<Vec<_>>>()?;
    let climbs = searches.iter().map(|search| search.get()).sum::<Result<u64>>()?;
    let best = cluster.variable("best")?;
    let top: f64 = best.value.ok_or("no call has found a point")?.parse()?;
    let point = String::from_utf8(best.witness)?;
    writeln!(out, "the maximum is {top:.3} at {point}")?;
    Ok(writeln!(out, "{climbs} climbs from {} points", calls * TRIES)?)
}
