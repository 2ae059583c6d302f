//! The tables of seeded bugs (mutants). Each crate has one table of the bugs that its own code
//! checks. The table of a crate may include that of a crate below it.

/// The tests that find a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// Seeds or scenarios of the fault simulator: `sim/tests/mutants.rs`.
    Simulator,
    /// Scenarios of one node: `node/src/replica/mutant_tests.rs`.
    NodeTests,
    /// The take-over simulation: `scheduler/tests/takeover/`.
    TakeOverTests,
    /// Tests of one home: `scheduler/src/tests/turn_mutant_tests.rs`.
    HomeTests,
}

/// Defines the enum of a crate's mutants from a table of lists.
///
/// ```
/// mod part {
///     proto::mutants! {
///         /// Bugs of a part.
///         Mutant;
///
///         /// Bugs that show at once.
///         ALL by Simulator {
///             /// Messages are sent twice.
///             SendTwice "send-twice",
///         }
///     }
/// }
/// proto::mutants! {
///     /// Bugs of the whole.
///     Mutant, or Part(part::Mutant);
///
///     /// Bugs beside those of the part.
///     OF_THE_REST by Simulator {
///         /// Clocks stand still.
///         ClockStandsStill "clock-stands-still",
///     }
/// }
/// let names: Vec<_> = Mutant::every().map(Mutant::name).collect();
/// assert_eq!(names, ["send-twice", "clock-stands-still"]);
/// ```
#[macro_export]
macro_rules! mutants {
    (
        $(#[doc = $about:literal])+
        $all:ident $(, or $part:ident($below:ty))?;

        $($(#[doc = $of:literal])+ $list:ident by $found_by:ident {
            $($(#[doc = $bug:literal])+ $mutant:ident $name:literal,)+
        })+
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $all {
            $(
                /// A mutant of the crate below.
                $part($below),
            )?
            $($($(#[doc = $bug])+ $mutant,)+)+
        }

        impl $all {
            $(
                $(#[doc = $of])+
                pub const $list: [Self; [$($name,)+].len()] = [$(Self::$mutant,)+];
            )+

            /// All mutants of all lists, with those of the crate below.
            pub fn every() -> impl Iterator<Item = Self> {
                let own = [$(&Self::$list[..],)+].into_iter().flatten().copied();
                $(let own = <$below>::every().map(Self::$part).chain(own);)?
                own
            }

            #[must_use]
            pub fn found_by(self) -> $crate::mutants::FoundBy {
                match self {
                    $(Self::$part(below) => below.found_by(),)?
                    $($(Self::$mutant)|+ => $crate::mutants::FoundBy::$found_by,)+
                }
            }

            /// The name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$part(below) => below.name(),)?
                    $($(Self::$mutant => $name,)+)+
                }
            }
        }

        $(
            impl From<$below> for $all {
                fn from(below: $below) -> Self {
                    Self::$part(below)
                }
            }
        )?
    };
}
