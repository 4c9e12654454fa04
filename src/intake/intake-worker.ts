import { serve } from "../threads/serve.ts";
import { type IntakeData, recordIntake } from "./record-intake.ts";

/** Worker thread that parses, checks, protects, compares and opens records and events. */

serve((data: IntakeData) => ({ methods: recordIntake(data) }));
