//! The effect of each step.

use crate::state::{
    Attempt, HOLDERS, Holder, Home, Message, Mutant, Options, State, Step, TERMS, Task,
};

impl State {
    pub(crate) fn steps(&self, steps: &mut Vec<Step>) {
        for term in 1..=TERMS {
            let messages = self.messages.iter();
            steps.extend(messages.map(|&message| Step::Deliver { message, term }));
            steps.extend((0..HOLDERS).map(|node| Step::Place { term, node }));
            steps.extend((0..HOLDERS).map(|node| Step::Notice { term, node }));
            steps.push(Step::Log { term });
        }
        for node in 0..HOLDERS {
            steps.extend([Step::Finish { node }, Step::Tell { node }]);
            steps.extend([Step::TakeForDead { node }, Step::Dies { node }, Step::Restart { node }]);
        }
        steps.extend([Step::FailOver, Step::HomeDies]);
    }

    /// The state after a step; `None` if it cannot happen, or changes nothing.
    pub(crate) fn after(&self, options: &Options, step: Step) -> Option<Self> {
        let mut next = self.clone();
        match step {
            Step::Deliver { message, term } => next.deliver(options, message, term),
            Step::Place { term, node } => next.place(options, term, node),
            Step::Log { term } => next.log(term),
            Step::Notice { term, node } => next.notice(options, term, node),
            Step::Finish { node } => next.finish(options, node),
            Step::Tell { node } => next.tell(node),
            Step::FailOver => next.fail_over(),
            Step::HomeDies => next.homes[usize::from(self.term) - 1].take().map(|_| ()),
            Step::TakeForDead { node } => next.take_for_dead(options, node),
            Step::Dies { node } => next.dies(options, node),
            Step::Restart { node } => next.restart(node),
        }?;
        next.forget_the_dead();
        (next != *self).then_some(next)
    }

    fn home(&mut self, term: u8) -> Option<&mut Home> {
        self.homes[usize::from(term) - 1].as_mut()
    }

    /// The home issues the next attempt, without a log record.
    fn place(&mut self, options: &Options, term: u8, node: u8) -> Option<()> {
        let holder = self.holder(node);
        if self.is_declared_failed(holder) {
            return None;
        }
        let forgets = options.mutant == Some(Mutant::TermForgotten);
        let home = self.home(term)?;
        if home.task != Task::Ready || home.given >= options.attempts {
            return None;
        }
        home.given += 1;
        let attempt = Attempt { term: if forgets { 1 } else { term }, number: home.given };
        home.task = Task::Placed { attempt, holder };
        self.messages.insert(Message::Push { attempt, to: holder });
        Some(())
    }

    /// The map shows the holder as down, so the home places the task again.
    fn notice(&mut self, options: &Options, term: u8, node: u8) -> Option<()> {
        let dead = self.dead[usize::from(node)];
        let is_asked = self.messages.iter().any(|message| match message {
            Message::Ask { to } => to.node == node,
            Message::Holding { from, .. } => from.node == node,
            _ => false,
        });
        let home = self.home(term)?;
        match &mut home.task {
            Task::Placed { holder, .. } if holder.node == node && holder.life <= dead => {
                if options.mutant == Some(Mutant::GoneHolderKeeps) {
                    return None;
                }
                home.task = Task::Ready;
            }
            Task::Asking { unheard } if *unheard & 1 << node != 0 && !is_asked => {
                *unheard &= !(1 << node);
                home.hears_no_more();
            }
            _ => return None,
        }
        Some(())
    }

    fn deliver(&mut self, options: &Options, message: Message, term: u8) -> Option<()> {
        // Messages to nodes are independent of the home, so only term 1 delivers them.
        let is_for_home = matches!(message, Message::Finished { .. } | Message::Holding { .. });
        if !is_for_home && term != 1 || !self.messages.remove(&message) {
            return None;
        }
        match message {
            Message::Push { attempt, to } => self.start(options, attempt, to),
            Message::Finished { attempt, from } => self.hear(options, term, attempt, from),
            Message::Reply { attempt, to, counted } => self.replied(options, attempt, to, counted),
            Message::Ask { to } => {
                let attempt = self.in_life(to)?.holds.map(|(attempt, _)| attempt);
                self.messages.insert(Message::Holding { from: to, attempt });
                Some(())
            }
            Message::Holding { from, attempt } => self.on_holding(term, from, attempt),
        }
    }

    fn start(&mut self, options: &Options, attempt: Attempt, to: Holder) -> Option<()> {
        let takes_any = options.mutant == Some(Mutant::EarlierAttemptTaken);
        let node = self.in_life(to)?;
        let is_later_here = node.holds.is_some_and(|(held, _)| held >= attempt);
        if !is_later_here || takes_any {
            node.holds = Some((attempt, false));
            self.started.insert((attempt, to));
        }
        Some(())
    }

    fn finish(&mut self, options: &Options, node: u8) -> Option<()> {
        let this = &mut self.nodes[usize::from(node)];
        let (attempt, ended) = this.holds.filter(|_| this.running)?;
        if ended {
            return None;
        }
        this.holds = Some((attempt, true));
        let name = output_name(options, attempt);
        this.outputs.retain(|&(other, _)| other != name);
        this.outputs.insert((name, attempt));
        Some(())
    }

    fn tell(&mut self, node: u8) -> Option<()> {
        let from = self.holder(node);
        let this = &self.nodes[usize::from(node)];
        let (attempt, _) = this.holds.filter(|&(_, ended)| ended && this.running)?;
        self.messages.insert(Message::Finished { attempt, from });
        Some(())
    }

    /// A home receives an end. A replaced home can write nothing, so it answers nothing.
    fn hear(&mut self, options: &Options, term: u8, attempt: Attempt, from: Holder) -> Option<()> {
        let (current, record) = (self.term, self.record);
        let any = options.mutant == Some(Mutant::CompletionWithoutAttempt);
        let eager = options.mutant == Some(Mutant::AcknowledgedBeforeLogged);
        let again = options.mutant == Some(Mutant::RepeatCountsAgain);
        let home = self.home(term)?;
        let counted = match home.task {
            Task::Asking { .. } => return Some(()), // The holder repeats it.
            Task::Placed { attempt: now, .. } if now == attempt || any => {
                home.task = Task::Ending { attempt, holder: from };
                if now != attempt {
                    self.counted_another = true;
                }
                if !eager {
                    return Some(());
                }
                true
            }
            Task::Ending { .. } => return Some(()),
            Task::Done if again => {
                self.counted += 1;
                return Some(());
            }
            _ => record.is_some_and(|(counted, _)| counted == attempt),
        };
        if term == current {
            self.messages.insert(Message::Reply { attempt, to: from, counted });
        }
        Some(())
    }

    fn log(&mut self, term: u8) -> Option<()> {
        if term != self.term {
            return None; // The replicas have promised to refuse it.
        }
        let home = self.home(term)?;
        let Task::Ending { attempt, holder } = home.task else { return None };
        home.task = Task::Done;
        self.record = Some((attempt, holder));
        self.counted += 1;
        Some(())
    }

    fn replied(
        &mut self,
        options: &Options,
        attempt: Attempt,
        to: Holder,
        counted: bool,
    ) -> Option<()> {
        let node = self.in_life(to)?;
        if node.holds == Some((attempt, true)) {
            node.holds = None;
        }
        if counted {
            self.told = Some(attempt);
        } else {
            let name = output_name(options, attempt);
            node.outputs.retain(|&(other, _)| other != name);
        }
        Some(())
    }

    fn fail_over(&mut self) -> Option<()> {
        if self.term == TERMS {
            return None;
        }
        self.term += 1;
        let unheard = (0..HOLDERS).filter(|&node| !self.is_declared_failed(self.holder(node)));
        let unheard: Vec<u8> = unheard.collect();
        let task = if self.record.is_some() {
            Task::Done
        } else if unheard.is_empty() {
            Task::Ready
        } else {
            Task::Asking { unheard: unheard.iter().fold(0, |bits, node| bits | 1 << node) }
        };
        if matches!(task, Task::Asking { .. }) {
            let asks = unheard.iter().map(|&node| Message::Ask { to: self.holder(node) });
            self.messages.extend(asks.collect::<Vec<_>>());
        }
        self.homes[usize::from(self.term) - 1] = Some(Home { task, given: 0 });
        Some(())
    }

    fn on_holding(&mut self, term: u8, from: Holder, held: Option<Attempt>) -> Option<()> {
        let is_dead = self.is_declared_failed(from);
        let home = self.home(term).filter(|_| term == TERMS)?;
        let Task::Asking { unheard } = &mut home.task else { return Some(()) };
        match held.filter(|_| !is_dead) {
            Some(attempt) => home.task = Task::Placed { attempt, holder: from },
            None => {
                *unheard &= !(1 << from.node);
                home.hears_no_more();
            }
        }
        Some(())
    }

    fn take_for_dead(&mut self, options: &Options, node: u8) -> Option<()> {
        let this = &self.nodes[usize::from(node)];
        let has_another = this.life < options.lives || !this.running;
        let dead = &mut self.dead[usize::from(node)];
        if !has_another || *dead >= this.life {
            return None;
        }
        *dead = this.life;
        Some(())
    }

    fn dies(&mut self, options: &Options, node: u8) -> Option<()> {
        let this = &mut self.nodes[usize::from(node)];
        if !this.running || this.life >= options.lives {
            return None;
        }
        (this.running, this.holds) = (false, None);
        Some(())
    }

    /// Messages to an ended incarnation are lost.
    fn forget_the_dead(&mut self) {
        let nodes = &self.nodes;
        self.messages.retain(|message| match message {
            Message::Push { to, .. } | Message::Reply { to, .. } | Message::Ask { to } => {
                let node = &nodes[usize::from(to.node)];
                node.running && node.life == to.life
            }
            Message::Finished { .. } | Message::Holding { .. } => true,
        });
    }

    /// The map and the homes learn of the restart: all that the earlier incarnation held is lost.
    fn restart(&mut self, node: u8) -> Option<()> {
        let this = &mut self.nodes[usize::from(node)];
        if this.running {
            return None;
        }
        let dead = &mut self.dead[usize::from(node)];
        *dead = this.life.max(*dead);
        (this.life, this.running) = (this.life + 1, true);
        Some(())
    }
}

impl Home {
    fn hears_no_more(&mut self) {
        if self.task == (Task::Asking { unheard: 0 }) {
            self.task = Task::Ready;
        }
    }
}

pub(crate) fn output_name(options: &Options, attempt: Attempt) -> Attempt {
    if options.mutant == Some(Mutant::OutputsWithoutAttempt) {
        Attempt { term: 1, number: 1 }
    } else {
        attempt
    }
}
