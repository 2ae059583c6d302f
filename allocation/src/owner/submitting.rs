//! The submission of a round: which one, its intent, the fence, and the answer.

use crate::demand::{Offering, plan};
use crate::intent::{Intent, Outcome, Phase};
use crate::limits::SUBMITTED_EVERY_MS;
use crate::owner::{Effect, Input, Owner, Queue, Round, Submission, Submits, Then, Wait};
use crate::{Mutant, keys};

impl Submits {
    pub(super) fn is_of(&self, queue: usize, intent: &Intent) -> bool {
        self.queue == queue && self.intent.number == intent.number
    }
}

impl Queue {
    fn offering(&self, now_ms: u64) -> Offering<'_> {
        let nodes = |is: fn(Phase) -> bool| {
            let intents = self.intents.values().filter(move |intent| is(intent.phase));
            intents.map(|intent| intent.nodes)
        };
        Offering {
            config: &self.config,
            learned: self.state.offer.clone(),
            queued: nodes(Phase::is_expected).collect(),
            running_nodes: nodes(|phase| phase == Phase::Running).sum(),
            rests: now_ms < self.state.not_before_ms,
        }
    }
}

impl Owner {
    /// Chooses a submission, writes its intent, fences it by the lease, and makes it.
    pub(super) fn submit(
        &self,
        now_ms: u64,
        round: &mut Round,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Effect>, String> {
        if !round.planned {
            round.planned = true;
            round.submits = self.choose(now_ms, round);
        }
        let Some(submits) = &round.submits else { return Ok(None) };
        if submits.is_made {
            return Ok(None);
        }
        if !submits.is_written && self.mutant != Some(Mutant::IntentNotWritten) {
            let (at, intent) = (submits.queue, submits.intent.clone());
            let key = keys::intent(&round.queues[at].config.name, intent.number);
            let then = Then::Intent(at, Box::new(intent.clone()), Outcome::Quiet);
            round.seen.insert(key.clone(), None);
            return Ok(Some(round.swap(key, &intent, then)));
        }
        let lapsed = self.mutant == Some(Mutant::LapsedOwnerSubmits);
        if !submits.is_fenced {
            let mut lease = round.lease.taken(&self.name, self.incarnation, now_ms);
            (lease.submitted_ms, lease.submissions) = (now_ms, lease.submissions + 1);
            return Ok(Some(round.swap(
                keys::owner(self.site),
                &lease.clone(),
                Then::Fences(lease),
            )));
        }
        if !round.lease.is_valid(now_ms) && !lapsed {
            return Err("the lease has lapsed before the submission".to_owned());
        }
        let (at, intent) = (submits.queue, &submits.intent);
        let queue = round.queues[at].config.clone();
        effects.push(Effect::Log(format!("submits {} with {} nodes", intent.name, intent.nodes)));
        let submission = Submission {
            queue,
            number: intent.number,
            name: intent.name.clone(),
            nodes: intent.nodes,
        };
        round.waits_for = Some(Wait::Submit);
        Ok(Some(Effect::Submit(Box::new(submission))))
    }

    /// An intent without a batch job, or the first further one that the plan asks for.
    fn choose(&self, now_ms: u64, round: &mut Round) -> Option<Submits> {
        let offerings: Vec<_> = round.queues.iter().map(|queue| queue.offering(now_ms)).collect();
        let asks = plan(&offerings, &round.demand);
        let may = now_ms >= round.lease.submitted_ms.saturating_add(SUBMITTED_EVERY_MS);
        let mut chosen = self.orphan(now_ms, round).filter(|_| may);
        for (at, ask) in asks.into_iter().enumerate() {
            let queue = &mut round.queues[at];
            if queue.config.system != self.site {
                continue;
            }
            if (queue.state.wanted_nodes, &queue.state.lines) != (ask.wanted_nodes, &ask.lines) {
                (queue.state.wanted_nodes, queue.state.lines) = (ask.wanted_nodes, ask.lines);
                queue.is_changed = true;
            }
            let number = queue.next.filter(|&number| number < u64::MAX);
            let wanted = ask.allocations.first().copied().zip(number);
            if let Some((nodes, number)) = wanted.filter(|_| may && chosen.is_none()) {
                let intent = self.intent(&queue.config.name, number, nodes, now_ms);
                chosen = Some(Submits {
                    queue: at,
                    intent,
                    is_written: false,
                    is_fenced: false,
                    is_made: false,
                });
            }
        }
        chosen
    }

    fn intent(&self, queue: &str, number: u64, nodes: u32, now_ms: u64) -> Intent {
        let name = format!("st-{}-{queue}-{number}", self.cluster);
        Intent::new(number, name, (self.site, nodes), &self.name, now_ms)
    }

    /// An intent without a job id, of which a listing of this round shows no batch job.
    fn orphan(&self, now_ms: u64, round: &Round) -> Option<Submits> {
        let listed_ms = round.listing.as_ref()?.0;
        let of_site = |queue: &&Queue| {
            let may = !queue.config.paused && now_ms >= queue.state.not_before_ms;
            queue.config.system == self.site && may
        };
        let own = round.queues.iter().enumerate().filter(|(_, queue)| of_site(queue));
        let mut intents =
            own.flat_map(|(at, queue)| queue.intents.values().map(move |intent| (at, intent)));
        let (queue, intent) = intents.find(|(_, intent)| {
            intent.phase == Phase::Intended && intent.job.is_empty() && intent.is_shown(listed_ms)
        })?;
        let intent = intent.clone();
        Some(Submits { queue, intent, is_written: true, is_fenced: false, is_made: false })
    }

    /// Notes the answer of the batch system.
    pub(super) fn answered(
        &self,
        now_ms: u64,
        round: &mut Round,
        answer: Input,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let Some(submits) = &mut round.submits else { return Err("nothing was submitted".into()) };
        submits.is_made = true;
        let queue = &mut round.queues[submits.queue];
        (queue.is_changed, queue.state.submissions) = (true, queue.state.submissions + 1);
        let (intent, outcome) = match answer {
            Input::Submitted(job) => {
                effects.push(Effect::Log(format!("{} is batch job {job}", submits.intent.name)));
                (submits.intent.queued(&job, now_ms), Outcome::Quiet)
            }
            Input::Refused(why) => {
                effects.push(Effect::Log(format!("{} was refused: {why}", submits.intent.name)));
                (submits.intent.refused(&why, now_ms), Outcome::Failed(why))
            }
            // It may have happened: a later listing shows it.
            Input::Failed(why) => {
                effects.push(Effect::Log(format!("{}: {why}", submits.intent.name)));
                queue.state.fail(now_ms, &why);
                return Ok(());
            }
            other => return Err(format!("a submission was answered by {other:?}")),
        };
        round.answer = Some((submits.queue, intent, outcome));
        Ok(())
    }
}
