//! Open jobs at one home: weight, late edges and held outputs.

use proto::wire::message::Body;
use proto::wire::open_request::What;
use proto::wire::{ErrorCode, JobPhase, Openness, response};
use proto::{ClientId, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::ledger::open::Standing;
use crate::output::Out;
use crate::tests::test_nodes::{homes, member, scheduler};
use crate::{Request, Scheduler, Tuning};

const ME: NodeId = NodeId(0);
const JOB: u64 = 7;
const CLIENT: ClientId = ClientId(1);

/// A home of two partitions and of the job. Messages to itself arrive in the same step.
struct Home {
    scheduler: Scheduler,
    out: Out,
}

impl Home {
    /// The home of an open job.
    fn with_job() -> Self {
        Self::with_settings(wire::JobSettings::default())
    }

    /// The home of an open job with a client that sends life signs.
    fn with_silence(silence: wire::Silence) -> Self {
        Self::with_settings(wire::JobSettings { silence: Some(silence), ..Default::default() })
    }

    fn with_settings(settings: wire::JobSettings) -> Self {
        let homes = homes(0, vec![member(0)], &[0, 0]);
        let scheduler = scheduler(0, 0, Tuning::default(), homes);
        let mut home = Self { scheduler, out: Out::default() };
        let (openness, settings) = (Openness::Open as i32, Some(settings));
        let commit = wire::JobCommit { job: JOB, openness, settings, ..Default::default() };
        home.ask(1, Request::Commit(commit)).expect("the job is opened");
        home
    }

    fn sign_at(&mut self, now: Time, detaches: bool) {
        self.sign_as(now, wire::LifeSign { attachment: 0, detaches });
    }
    fn sign_as(&mut self, now: Time, sign: wire::LifeSign) {
        let request = wire::OpenRequest { job: JOB, what: Some(What::Sign(sign)) };
        self.scheduler.on_request(now, CLIENT, 6, Request::Open(request), &mut self.out);
        self.step(now);
    }

    /// The state of the job without a step.
    fn record(&self) -> wire::JobState {
        let query = wire::JobQuery { job: JOB, ..Default::default() };
        self.scheduler.home.jobs.state(query).expect("it is homed here").expect("it is known")
    }

    fn step(&mut self, now: Time) {
        for _ in 0..8 {
            self.scheduler.settle(now, &mut self.out);
            self.scheduler.act(now, &mut self.out);
            for (to, body) in std::mem::take(&mut self.out.reliable) {
                assert_eq!(to, ME);
                self.scheduler.on_message(now, ME, body, &mut self.out);
            }
        }
    }

    /// Sends a request. Returns its answer, or `None` if there is none yet.
    fn try_ask(
        &mut self,
        id: u64,
        request: Request,
    ) -> Option<Result<response::Body, wire::Error>> {
        self.scheduler.on_request(Time(1), CLIENT, id, request, &mut self.out);
        self.step(Time(1));
        let answers = std::mem::take(&mut self.out.answers).into_iter();
        let mut mine = answers.map(|answer| answer.response).filter(|it| it.id == id);
        mine.next().map(|response| match response.error {
            Some(error) => Err(error),
            None => Ok(response.body.expect("an answer has a body")),
        })
    }
    fn ask(&mut self, id: u64, request: Request) -> Result<response::Body, wire::Error> {
        self.try_ask(id, request).expect("it is answered")
    }

    fn open_request(&mut self, what: What) -> Result<response::Body, wire::Error> {
        self.ask(9, Request::Open(wire::OpenRequest { job: JOB, what: Some(what) }))
    }

    fn state(&mut self) -> wire::JobState {
        // Reports are collected for a while.
        self.step(Time(10_000_000_000));
        let query = wire::JobQuery { job: JOB, ..Default::default() };
        match self.ask(8, Request::Job(query)) {
            Ok(response::Body::Job(state)) => state,
            other => panic!("{other:?}"),
        }
    }

    /// Ends a task without a run.
    fn cancel(&mut self, local: LocalId) {
        let cancel = wire::Cancel { job: JOB, locals: vec![local.0], ..Default::default() };
        self.ask(7, Request::Cancel(cancel)).expect("the task is known");
    }
}

/// One task with these parents, all by order.
fn chunk(partition: u32, number: u32, first: u64, parents: &[LocalId]) -> wire::Chunk {
    let lists = wire::Parents {
        index: first,
        first_slot: 0,
        parent: parents.iter().map(|parent| parent.0).collect(),
        output: vec![0; parents.len()],
    };
    wire::Chunk {
        job: JOB,
        partition,
        number,
        first,
        specs: vec![wire::Spec::default()],
        tasks: vec![wire::Task { slots: parents.len() as u32, ..Default::default() }],
        parents: vec![lists],
        open: true,
        ..Default::default()
    }
}

fn local(partition: u32, index: u64) -> LocalId {
    LocalId::new(PartitionId(partition), index)
}

#[test]
fn a_part_gets_weight_before_it_stores_and_refuses_after_the_close() {
    let mut home = Home::with_job();
    let standing = |home: &Home| home.scheduler.home.ledger.standing(JobId(JOB), PartitionId(1));
    assert_eq!(standing(&home), Standing::Unknown);
    home.ask(2, Request::Submit(chunk(1, 0, 0, &[]))).expect("it is stored");
    assert_eq!(standing(&home), Standing::Member);
    let state = home.state();
    assert_eq!((state.total, state.partitions.len(), state.ended_ns), (1, 1, 0));
    home.ask(3, Request::Submit(chunk(1, 0, 0, &[]))).expect("a repetition changes nothing");
    home.cancel(local(1, 0));
    assert_eq!(home.state().ended_ns, 0, "the part keeps its weight");

    home.open_request(What::Close(wire::CloseJob::default())).expect("it is open");
    assert_eq!(standing(&home), Standing::Ended);
    assert_ne!(home.state().ended_ns, 0);
    let refused = home.ask(4, Request::Submit(chunk(1, 1, 1, &[]))).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Refused);
    assert!(refused.text.contains("is closed"), "{}", refused.text);
    home.ask(5, Request::Submit(chunk(1, 0, 0, &[]))).expect("it was stored before the close");
}

#[test]
fn a_late_edge_reaches_a_parent_in_another_partition_whether_it_has_ended_or_not() {
    let mut home = Home::with_job();
    home.ask(2, Request::Submit(chunk(0, 0, 0, &[]))).expect("it is stored");
    home.cancel(local(0, 0));
    // The child of an ended parent, and that of a parent that comes later.
    home.ask(3, Request::Submit(chunk(1, 0, 0, &[local(0, 0)]))).expect("it is stored");
    home.ask(4, Request::Submit(chunk(1, 1, 1, &[local(0, 1)]))).expect("it is stored");
    let state = |home: &Home, index| {
        let task = TaskId { job: JobId(JOB), local: local(1, index) };
        home.scheduler.home.ledger.state(task).map(|state| format!("{state:?}"))
    };
    assert_eq!(state(&home, 0).as_deref(), Some("Ended(Skipped)"));
    assert_eq!(state(&home, 1).as_deref(), Some("Waiting"));
    home.open_request(What::Close(wire::CloseJob::default())).expect("it is open");
    assert_eq!(state(&home, 1).as_deref(), Some("Ended(Skipped)"), "its parent never came");
    assert_ne!(home.state().ended_ns, 0);
}

#[test]
fn chunks_that_could_wait_without_end_are_refused() {
    let mut home = Home::with_job();
    let mut refuse = |chunk: wire::Chunk, part: &str| {
        let error = home.ask(2, Request::Submit(chunk)).unwrap_err();
        assert!(error.text.contains(part), "{}", error.text);
    };
    refuse(chunk(0, 0, 3, &[local(0, 3)]), "before one of its parents");
    let mut lacking = chunk(0, 0, 0, &[local(0, 9)]);
    lacking.tasks[0].slots = 2;
    refuse(lacking, "one parent for each of its slots");
    let mut odd = chunk(0, 0, 0, &[local(0, 9)]);
    odd.parents[0].output.clear();
    refuse(odd, "differ in length");
    let mut of_another = chunk(0, 0, 0, &[local(0, 9)]);
    of_another.parents[0].index = 5;
    refuse(of_another, "not in it");
    refuse(chunk(0, 1 << 31, 0, &[]), "out of range");
}

#[test]
fn ids_of_two_clients_differ() {
    let mut home = Home::with_job();
    let mut reserve = || {
        let ids = wire::ReserveIds { tasks: 10, chunks: 2 };
        match home.open_request(What::Reserve(ids)) {
            Ok(response::Body::Reserved(range)) => (range.first, range.chunk),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((reserve(), reserve()), ((0, 0), (10, 2)));
    let ids = wire::ReserveIds { tasks: 1 << 39, chunks: 1 };
    let refused = home.open_request(What::Reserve(ids)).unwrap_err();
    assert!(refused.text.contains("no ids left"), "{}", refused.text);
}

#[test]
fn a_job_that_was_submitted_as_a_whole_gives_no_weight() {
    let mut home = Home::with_job();
    let total = wire::PartitionTotal { partition: 0, chunks: 1, tasks: 1 };
    let commit = wire::JobCommit { job: JOB + 1, partitions: vec![total], ..Default::default() };
    home.ask(2, Request::Commit(commit)).expect("it is committed");
    let mut refuse = |job| {
        let join = wire::Join { job, partition: 1 };
        home.scheduler.on_message(Time(1), ME, Body::Join(join), &mut home.out);
        match home.out.reliable.pop() {
            Some((ME, Body::JoinRefused(refusal))) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let refusal = refuse(JOB + 1);
    assert_eq!(refusal.code, ErrorCode::Refused as i32);
    assert!(refusal.text.contains("was submitted as a whole"), "{}", refusal.text);
    assert_eq!(refuse(JOB + 2).code, ErrorCode::Unknown as i32);
}

#[test]
fn a_silent_client_is_recorded_and_its_job_is_closed_later() {
    let mut home =
        Home::with_silence(wire::Silence { after_ns: 60, close_ns: 500, cancels: false });
    home.step(Time(50));
    home.sign_at(Time(50), false);
    home.step(Time(109));
    assert_eq!(home.record().silent_ns, 0, "the last sign came 59 ns ago");
    home.step(Time(110));
    assert_eq!((home.record().silent_ns, home.record().openness()), (110, Openness::Open));
    home.sign_at(Time(200), false);
    assert_eq!(home.record().silent_ns, 0, "another client has attached");
    home.step(Time(260));
    home.step(Time(759));
    assert_eq!((home.record().silent_ns, home.record().ended_ns), (260, 0));
    home.step(Time(760));
    assert_ne!(home.record().ended_ns, 0, "an open job without tasks ends with its close");
}

#[test]
fn the_close_of_a_silent_client_does_not_trust_the_clock_of_an_earlier_home() {
    let silence = wire::Silence { after_ns: 60, close_ns: 500, cancels: false };
    let mut home = Home::with_silence(silence);
    home.sign_at(Time(5_000), false);
    home.step(Time(5_060));
    let state = home.record();
    assert_eq!(state.silent_ns, 5_060);
    // The clock of the next home is ahead, or behind.
    for (begins, since) in [(5_200, 5_060), (100, 100)] {
        let homes = homes(0, vec![member(0)], &[0, 0]);
        let scheduler = scheduler(0, 0, Tuning::default(), homes);
        let mut home = Home { scheduler, out: Out::default() };
        home.scheduler.load_job(state.clone());
        home.scheduler.resume(Time(begins), &mut home.out);
        home.step(Time(begins));
        assert_eq!(home.record().silent_ns, since);
        home.step(Time(since + 499));
        assert_eq!(home.record().ended_ns, 0);
        home.step(Time(since + 500));
        assert_ne!(home.record().ended_ns, 0);
    }
}

/// The answers to its first requests were lost.
#[test]
fn a_client_that_repeats_its_opening_is_not_silent() {
    let silence = wire::Silence { after_ns: 60, close_ns: 0, cancels: true };
    let mut home = Home::with_silence(silence);
    let (openness, settings) = (Openness::Open as i32, Some(wire::JobSettings::default()));
    let commit = wire::JobCommit { job: JOB, openness, settings, ..Default::default() };
    let again = Request::Commit(commit);
    home.scheduler.on_request(Time(50), CLIENT, 1, again, &mut home.out);
    home.step(Time(109));
    assert_eq!(home.record().phase(), JobPhase::Running);
    home.step(Time(110));
    assert_eq!(home.record().phase(), JobPhase::JobCancelled);
}

#[test]
fn silence_cancels_if_the_client_said_so_and_not_after_it_has_detached() {
    let silence = wire::Silence { after_ns: 60, close_ns: 0, cancels: true };
    let mut home = Home::with_silence(silence);
    home.sign_at(Time(10), true);
    // A sign that was sent before comes late.
    home.sign_at(Time(11), false);
    home.step(Time(1_000));
    assert_eq!((home.record().detached, home.record().ended_ns), (true, 0));
    assert_eq!(home.scheduler.home.jobs.next_silence(), None);
    let ids = wire::ReserveIds { tasks: 1, chunks: 1 };
    let Ok(response::Body::Reserved(range)) = home.open_request(What::Reserve(ids)) else {
        panic!("the job is open");
    };
    assert_eq!((range.attachment, range.silence_ns), (1, 60));
    let sign = wire::LifeSign { attachment: range.attachment, detaches: false };
    home.sign_as(Time(1_000), sign);
    home.step(Time(1_059));
    assert_eq!((home.record().detached, home.record().phase()), (false, JobPhase::Running));
    home.step(Time(1_060));
    assert_eq!(home.record().phase(), JobPhase::JobCancelled);
}
