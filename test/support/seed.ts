import { seedProperties } from "./random.ts";

// Runs before each test file (setupFiles of vitest.config.ts).
seedProperties();
