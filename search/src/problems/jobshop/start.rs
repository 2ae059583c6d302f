//! Finds a good schedule before the search: tabu search that exchanges neighbours at the ends of
//! critical blocks (Nowicki and Smutnicki's neighbourhood).

use crate::problems::chance::Chance;
use crate::problems::jobshop::Instance;

/// The most exchanges, and the most for a large instance: this many over its operations.
const STEPS_MAX: usize = 12_000;
const OPERATIONS_MAX: usize = 2_000_000;
/// Steps during which an exchange is not taken back, and its random part.
const TABU: usize = 8;
const TABU_MORE: usize = 6;
/// Steps without a shorter schedule before the search goes back to the shortest one.
const PATIENCE: usize = 600;
/// Random exchanges after going back.
const KICKS: usize = 8;

/// By machine: the order of the jobs.
type Order = Vec<Vec<usize>>;

/// An exchange of the jobs at a place of a machine's order and the place after it.
#[derive(Clone, Copy)]
struct Exchange {
    machine: usize,
    place: usize,
}

/// The best exchange so far of a step: the one with the least key.
struct Chosen {
    /// Whether it is forbidden, the length after it, and a number that decides between equals.
    key: (bool, i64, usize),
    exchange: Exchange,
    /// The starts after it.
    starts: Vec<i64>,
}

/// A schedule that is being improved.
struct Tabu<'a> {
    instance: &'a Instance,
    order: Order,
    /// The shortest schedule so far: length, starts, order.
    best: (i64, Vec<i64>, Order),
    chance: Chance,
    /// By machine, job and job: the step until which they are not exchanged back.
    until: Vec<usize>,
}

/// The length and the starts of a short schedule. The same instance always has the same one.
pub(crate) fn schedule(instance: &Instance) -> (i64, Vec<i64>) {
    let order = dispatched(instance);
    let starts = starts(instance, &order).unwrap_or_default();
    let best = (length(instance, &starts), starts, order.clone());
    let until = vec![0; instance.machines * instance.jobs.len() * instance.jobs.len()];
    let mut tabu = Tabu { instance, order, best, chance: Chance::new(1), until };
    let least = least(instance);
    let mut without = 0;
    let operations = instance.machines * instance.jobs.len();
    for step in 1..=STEPS_MAX.min(OPERATIONS_MAX / operations) {
        if tabu.best.0 <= least {
            break;
        }
        let before = tabu.best.0;
        if without == PATIENCE {
            tabu.go_back();
            without = 0;
        }
        if !tabu.step(step) {
            break;
        }
        without = if tabu.best.0 < before { 0 } else { without + 1 };
    }
    (tabu.best.0, tabu.best.1)
}

impl Tabu<'_> {
    /// Takes the best exchange; false if there is none, because the schedule is the shortest one.
    fn step(&mut self, step: usize) -> bool {
        let Some(known) = starts(self.instance, &self.order) else { return false };
        let mut chosen: Option<Chosen> = None;
        for exchange in exchanges(self.instance, &self.order, &known) {
            let is_tabu = self.until[self.pair(exchange)] > step;
            exchange.apply(&mut self.order);
            let after = starts(self.instance, &self.order);
            exchange.apply(&mut self.order);
            let Some(after) = after else { continue };
            let length = length(self.instance, &after);
            let key = (is_tabu && length >= self.best.0, length, self.chance.below(1_000));
            if chosen.as_ref().is_none_or(|known| key < known.key) {
                chosen = Some(Chosen { key, exchange, starts: after });
            }
        }
        let Some(Chosen { key: (_, length, _), exchange, starts }) = chosen else { return false };
        exchange.apply(&mut self.order);
        let pair = self.pair(exchange);
        self.until[pair] = step + TABU + self.chance.below(TABU_MORE);
        if length < self.best.0 {
            self.best = (length, starts, self.order.clone());
        }
        true
    }

    /// Goes back to the shortest schedule, and away from it by random exchanges.
    fn go_back(&mut self) {
        self.order.clone_from(&self.best.2);
        self.until.fill(0);
        for _ in 0..KICKS {
            let Some(known) = starts(self.instance, &self.order) else { return };
            let possible = exchanges(self.instance, &self.order, &known);
            if possible.is_empty() {
                return;
            }
            possible[self.chance.below(possible.len())].apply(&mut self.order);
        }
    }

    /// The exchange that an exchange would take back.
    fn pair(&self, Exchange { machine, place }: Exchange) -> usize {
        let jobs = self.instance.jobs.len();
        let (one, other) = (self.order[machine][place], self.order[machine][place + 1]);
        (machine * jobs + other) * jobs + one
    }
}

impl Exchange {
    fn apply(self, order: &mut Order) {
        order[self.machine].swap(self.place, self.place + 1);
    }
}

/// No schedule is shorter than the work of a machine or of a job.
fn least(instance: &Instance) -> i64 {
    let jobs = instance.jobs.iter();
    let longest = jobs.map(|job| job.iter().map(|operation| operation.duration).sum());
    let durations = instance.durations();
    let machines = durations.chunks(instance.jobs.len()).map(|machine| machine.iter().sum());
    longest.chain(machines).max().unwrap_or(0)
}

/// The order in which jobs with the most work left go first.
fn dispatched(instance: &Instance) -> Order {
    let mut next = vec![0; instance.jobs.len()];
    let mut order = vec![Vec::new(); instance.machines];
    let left = |job: usize, next: &[usize]| -> i64 {
        instance.jobs[job][next[job]..].iter().map(|operation| operation.duration).sum()
    };
    loop {
        let open = (0..next.len()).filter(|&job| next[job] < instance.machines);
        let Some(job) = open.max_by_key(|&job| left(job, &next)) else { return order };
        order[instance.jobs[job][next[job]].machine].push(job);
        next[job] += 1;
    }
}

/// The earliest start of each operation, by machine and job; none if the orders contradict.
fn starts(instance: &Instance, order: &Order) -> Option<Vec<i64>> {
    let jobs = instance.jobs.len();
    let mut starts = vec![0; instance.machines * jobs];
    let mut step = vec![0; jobs];
    let mut place = vec![0; instance.machines];
    let mut job_end = vec![0; jobs];
    let mut machine_end = vec![0; instance.machines];
    let mut open: Vec<usize> = (0..jobs).collect();
    while let Some(job) = open.pop() {
        while let Some(operation) = instance.jobs[job].get(step[job]) {
            let machine = operation.machine;
            if order[machine][place[machine]] != job {
                break;
            }
            let start = i64::max(job_end[job], machine_end[machine]);
            starts[instance.index(machine, job)] = start;
            (job_end[job], machine_end[machine]) =
                (start + operation.duration, start + operation.duration);
            (step[job], place[machine]) = (step[job] + 1, place[machine] + 1);
            // The next job of the machine may wait for it.
            if let Some(&next) = order[machine].get(place[machine]) {
                let waits = instance.jobs[next].get(step[next]);
                if next != job && waits.is_some_and(|operation| operation.machine == machine) {
                    open.push(next);
                }
            }
        }
    }
    step.iter().all(|&step| step == instance.machines).then_some(starts)
}

fn length(instance: &Instance, starts: &[i64]) -> i64 {
    let jobs = instance.jobs.iter().enumerate();
    let ends = jobs.filter_map(|(job, operations)| {
        let last = operations.last()?;
        Some(starts[instance.index(last.machine, job)] + last.duration)
    });
    ends.max().unwrap_or(0)
}

/// The exchanges at both ends of the blocks of one critical path.
fn exchanges(instance: &Instance, order: &Order, starts: &[i64]) -> Vec<Exchange> {
    let mut found = Vec::new();
    for block in blocks(instance, order, starts) {
        let (machine, first, last) = block;
        if first < last {
            found.push(Exchange { machine, place: first });
            if first + 1 < last {
                found.push(Exchange { machine, place: last - 1 });
            }
        }
    }
    found
}

/// The blocks of a critical path: machine, first and last place in its order.
fn blocks(instance: &Instance, order: &Order, starts: &[i64]) -> Vec<(usize, usize, usize)> {
    let length = length(instance, starts);
    let end_of = |machine: usize, job: usize| {
        let step = instance.jobs[job].iter().position(|operation| operation.machine == machine);
        let step = step.unwrap_or(0);
        (starts[instance.index(machine, job)] + instance.jobs[job][step].duration, step)
    };
    let last = (0..instance.jobs.len()).find_map(|job| {
        let operation = instance.jobs[job].last()?;
        (end_of(operation.machine, job).0 == length).then_some((operation.machine, job))
    });
    let Some((mut machine, mut job)) = last else { return Vec::new() };
    let place = |machine: usize, job: usize| order[machine].iter().position(|&at| at == job);
    let mut blocks = Vec::new();
    let mut to = place(machine, job).unwrap_or(0);
    let mut from = to;
    loop {
        let start = starts[instance.index(machine, job)];
        let (_, step) = end_of(machine, job);
        if from > 0 && end_of(machine, order[machine][from - 1]).0 == start {
            from -= 1;
            job = order[machine][from];
            continue;
        }
        blocks.push((machine, from, to));
        if step == 0 || start == 0 {
            return blocks;
        }
        machine = instance.jobs[job][step - 1].machine;
        to = place(machine, job).unwrap_or(0);
        from = to;
    }
}
